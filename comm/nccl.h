// NCCL, which lies in a module of its own so that one GPU trains without it, and its choices, which
// it reports in its log alone.
#pragma once

#include <string>
#include <vector>

#include "models/probe.h"
#include "reports/document/communication.h"

namespace nearmetal {

/// The settings that NCCL reads from the environment.
struct NcclSetUp {
  NcclAlgorithm algorithm = NcclAlgorithm::automatic;
  bool keep_log = false;  // of its choices
};

/// Errors of NCCL and of the device throw std::runtime_error.
class Nccl {
 public:
  virtual ~Nccl() = default;
  /// The library that was loaded: "nccl 2.28.9". All ranks must have the same.
  virtual std::string version() const = 0;
  /// Before the first group. No log is kept where the user reads it (NCCL_DEBUG), nor should it be
  /// where sums are launched one by one: NCCL writes a line for each.
  virtual void set_up(const NcclSetUp& set_up) = 0;
  /// The log as far as NCCL has written it (NCCL_DEBUG=INFO, subsystems INIT, GRAPH and TUNING).
  virtual std::string log() = 0;
  /// Names a new group of ranks: one rank makes it, all of them join with it, each with a GPU.
  virtual std::string new_group() = 0;
  /// Probes in a group of their own: allreduce, allgather and broadcast, with the sizes and bus
  /// factors of nccl-tests (of allgather: the bytes that each rank ends with). Each checks what
  /// arrives before it is timed; start and runs are collective.
  virtual std::vector<Probe> probes(const std::string& group, int rank, int ranks, int gpu) = 0;
};

/// Throws NotSupported where the module was not built, or NCCL is not on this machine.
Nccl& load_nccl();

/// The function that the module exports under this name.
using NcclEntry = Nccl* (*)();
inline constexpr const char* nccl_entry_name = "nearmetal_nccl";

/// The choices in what NCCL 2.25 or later writes at the level INFO for the subsystems INIT, GRAPH
/// and TUNING (src/enqueue.cc, src/init.cc and src/transport of its sources). Each thing once, in
/// the order of the log; sums only of what follows its first `earlier_bytes`, and of `operations`,
/// as NCCL names them, separated by |. Unknown where there is none.
Maybe<NcclChoices> parse_nccl_log(const std::string& log, size_t earlier_bytes = 0,
                                  const std::string& operations = "AllReduce");

/// Throws std::runtime_error unless `choices` are known and every sum took `algorithm`; automatic:
/// any.
void require_algorithm(const Maybe<NcclChoices>& choices, NcclAlgorithm algorithm);

}  // namespace nearmetal
