// How fast NCCL moves bytes of the GPUs' memory between the ranks.
#pragma once

#include <string>
#include <vector>

#include "models/probe.h"

namespace nearmetal {

/// See Nccl::probes().
std::vector<Probe> nccl_probes(const std::string& group, int rank, int ranks, int gpu);

}  // namespace nearmetal
