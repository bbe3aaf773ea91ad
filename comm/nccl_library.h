// What sums the gradients of GPUs, NCCL above all; a module of its own, so that one GPU trains
// without it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/host_place.h"
#include "comm/host_sum.h"
#include "comm/world.h"
#include "models/all_reduce.h"
#include "models/probe.h"
#include "reports/document/communication.h"

namespace nearmetal {

/// What NCCL reads from the environment.
struct NcclSetUp {
  NcclAlgorithm algorithm = NcclAlgorithm::automatic;
  bool keep_log = false;  // of its choices
};

/// How sums leave a host.
struct BetweenHosts {
  // Over the ranks with the same local_rank.
  std::unique_ptr<HostSum> sum;
  // Called where that fails, on a thread of the driver and with other ranks waiting: must end the
  // job.
  std::function<void(const std::string& why)> failed;
};

/// Errors of NCCL and of the device throw std::runtime_error.
class Nccl {
 public:
  virtual ~Nccl() = default;
  /// Of the library that was loaded: "nccl 2.28.9". All ranks must have the same.
  virtual std::string version() const = 0;
  /// Before the first group. No log is kept where the user reads it (NCCL_DEBUG), nor should it be
  /// where sums are launched one by one: NCCL writes a line for each.
  virtual void set_up(const NcclSetUp& set_up) = 0;
  /// As far as NCCL has written it (NCCL_DEBUG=INFO, subsystems INIT, GRAPH and TUNING).
  virtual std::string log() = 0;
  /// Names a new group of ranks: one rank makes it, all of them join with it.
  virtual std::string new_group() = 0;
  /// Waits for all ranks of the group. `gpu`: index among the visible GPUs, one for each rank.
  virtual std::unique_ptr<AllReduce> join(const std::string& group, int rank, int ranks,
                                          int gpu) = 0;
  /// The same for sums by NCCL among the ranks of each host, which are a `group`, and by `between`
  /// from host to host. Waits for the ranks of this host.
  virtual std::unique_ptr<AllReduce> join_hierarchical(const std::string& group,
                                                       const HostPlace& place, int gpu,
                                                       BetweenHosts between) = 0;
  /// The same without NCCL, by copy engines through the memory of the host, on which all ranks of
  /// `world` must be. Its bind() is collective.
  virtual std::unique_ptr<AllReduce> join_through_host(World& world, int gpu) = 0;
  /// Of a group of its own: allreduce, allgather and broadcast, with the sizes and bus factors of
  /// nccl-tests (of allgather: the bytes that each rank ends with). Each checks what arrives before
  /// it is timed; start and runs are collective.
  virtual std::vector<Probe> probes(const std::string& group, int rank, int ranks, int gpu) = 0;
};

/// Throws NotSupported where the module was not built, or NCCL is not on this machine.
Nccl& load_nccl();

/// What the module exports under this name.
using NcclEntry = Nccl* (*)();
inline constexpr const char* nccl_entry_name = "nearmetal_nccl";

}  // namespace nearmetal
