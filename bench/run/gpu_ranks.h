// Which GPU a rank takes, and how the ranks of several find one another.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/host_place.h"
#include "comm/nccl_library.h"
#include "comm/world.h"
#include "models/backend.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Sets config.gpu: of the GPUs that this process sees one for each rank of a host, unless one was
/// named.
void choose_gpu(RunConfig& config, const Origins& origins, Backend& backend, const World& world);

struct NcclGroup {
  Nccl& nccl;
  std::string name;
};

/// NCCL before it makes its first group here; collective. Throws JobFailure where a rank has none
/// or another one.
Nccl& set_up_nccl(World& world, const NcclSetUp& set_up);

/// A new group of all ranks, the first that NCCL makes here; as set_up_nccl().
NcclGroup new_nccl_group(World& world, const NcclSetUp& set_up = {});

/// On which host each rank is; collective.
std::vector<RankHost> hosts_of_ranks(World& world);

/// The name of a new group of the ranks of each host, after set_up_nccl(); collective. Throws
/// JobFailure where a rank cannot make its host's.
std::string new_host_group(World& world, Nccl& nccl, const HostPlace& place);

/// Sums by NCCL inside the hosts, in the groups of new_host_group(), and by MPI between them;
/// collective. `failed`: as in BetweenHosts.
std::unique_ptr<AllReduce> join_hierarchical(World& world, Nccl& nccl, const std::string& group,
                                             const HostPlace& place, int gpu,
                                             std::function<void(const std::string& why)> failed);

}  // namespace nearmetal
