// How the ranks of several GPUs find one another.
#pragma once

#include <string>
#include <vector>

#include "comm/join_all_reduce.h"
#include "comm/world.h"

namespace nearmetal {

/// NCCL before it makes its first group here; collective. Throws JobFailure where a rank has none
/// or another one.
Nccl& set_up_nccl(World& world, const NcclSetUp& set_up = {});

/// NCCL's name of a new group, which each of its ranks gets from `maker`: of all ranks, or of those
/// of a host; collective. Throws JobFailure where a rank cannot make its own.
std::string new_nccl_group(World& world, Nccl& nccl, int maker = 0);

/// On which host each rank is; collective.
std::vector<RankHost> hosts_of_ranks(World& world);

}  // namespace nearmetal
