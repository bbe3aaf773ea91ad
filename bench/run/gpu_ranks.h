// Which GPU a rank takes, and how the ranks of several find one another.
#pragma once

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

/// NCCL before it makes its first group here; collective. Throws JobFailure where a rank has none
/// or another one.
Nccl& set_up_nccl(World& world, const NcclSetUp& set_up = {});

/// NCCL's name of a new group, which each of its ranks gets from `maker`: of all ranks, or of those
/// of a host; collective. Throws JobFailure where a rank cannot make its own.
std::string new_nccl_group(World& world, Nccl& nccl, int maker = 0);

/// On which host each rank is; collective.
std::vector<RankHost> hosts_of_ranks(World& world);

}  // namespace nearmetal
