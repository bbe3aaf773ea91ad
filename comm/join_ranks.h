// Where the ranks of a job are, and the modules that join them: to sum the gradients of one with
// those of the others, and as stages of a pipeline to their neighbours.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "comm/world.h"
#include "models/pipeline_schedule.h"
#include "reports/document/communication.h"

namespace nearmetal {

class AllReduce;  // models/program.h

/// The operating-system instance of a rank, as NCCL tells them apart: by NCCL_HOSTID where that is
/// set, as it is in an emulated VM, else by the name and what the kernel drew when it started.
struct RankHost {
  std::string name;
  std::string boot_id;  // empty beside NCCL_HOSTID

  bool operator==(const RankHost&) const = default;
};

RankHost rank_host();

/// Where one rank of a job is among its hosts.
struct HostPlace {
  int hosts = 1;
  int local_rank = 0;   // among those of its host, in the order of their ranks
  int local_ranks = 1;  // on its host
  int first_rank = 0;   // of its host
};
HostPlace place_of(std::span<const RankHost> hosts, int rank);

/// Throws std::invalid_argument, which names the hosts, where `collective` does not sum over them.
void require_hosts_for(const Collective& collective, std::span<const RankHost> hosts);

struct Part {
  int64_t begin = 0;
  int64_t elements = 0;

  bool operator==(const Part&) const = default;
};

/// Part `part` of [0, `elements`). Parts begin at multiples of 64 elements, so that they are
/// aligned, and differ by less than 128; some are empty where there are too few elements.
inline Part part_of(int64_t elements, int parts, int part) {
  constexpr int64_t unit = 64;  // 128 bytes of the smallest type
  const int64_t units = (elements + unit - 1) / unit;
  const auto begin_of = [&](int i) { return std::min(elements, units * i / parts * unit); };
  return {begin_of(part), begin_of(part + 1) - begin_of(part)};
}

struct JoinRequest {
  World& world;  // outlives what is made
  HostPlace place{};
  int gpu = 0;          // index among the visible GPUs, one for each rank
  std::string group{};  // NCCL's name of the ranks over which it sums
  /// Called where sums between hosts fail, on a thread of the driver and with other ranks waiting:
  /// must end the job.
  std::function<void(const std::string& why)> failed{};
};

/// Collective. Throws NotSupported where the module was not built, or its library is not on this
/// machine, std::runtime_error for errors of library and device.
std::unique_ptr<AllReduce> join_all_reduce(const Collective& collective,
                                           const JoinRequest& request);

/// The function that the module of MPI or of NCCL exports for each row of `collectives`, as
/// nearmetal_join_<name>.
using JoinEntry = AllReduce* (*)(const JoinRequest& request);

/// NCCL's names of the groups that stages use: each stage but the last makes two for its boundary
/// with the next, one each way, so that values never wait behind gradients; the first stage makes
/// one of all for sums. In the order of the stages, as all of them gathered it.
struct StageGroups {
  std::string values, gradients, sums;
};

/// Collective over the stages of one replica: `request.world` has them in their order.
/// `groups`: of each stage, empty on CPUs. Throws NotSupported where the module was not built,
/// std::runtime_error for errors of library and device.
std::unique_ptr<StageLinks> join_stage_links(bool on_gpus, const JoinRequest& request,
                                             std::span<const StageGroups> groups);

/// The function that the modules of MPI and NCCL export.
using StageLinksEntry = StageLinks* (*)(const JoinRequest& request,
                                        std::span<const StageGroups> groups);
inline constexpr const char* stage_links_entry_name = "nearmetal_join_stage_links";

}  // namespace nearmetal
