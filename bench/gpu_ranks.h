// Which GPU a rank takes, and how the ranks of several find one another.
#pragma once

#include <string>

#include "comm/nccl_library.h"
#include "comm/world.h"
#include "models/backend.h"
#include "reports/types.h"

namespace nearmetal {

/// Sets config.gpu: of the GPUs that this process sees one for each rank of a host, unless one was
/// named.
void choose_gpu(RunConfig& config, const Origins& origins, Backend& backend, const World& world);

struct NcclGroup {
  Nccl& nccl;
  std::string name;
};

/// A new group of all ranks, the first that NCCL makes here; collective. Throws JobFailure where a
/// rank has no NCCL or another one.
NcclGroup new_nccl_group(World& world, const NcclSetUp& set_up = {});

}  // namespace nearmetal
