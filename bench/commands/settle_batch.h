// Finds the batch of `--batch auto`.
#pragma once

#include "bench/cli/terminal.h"
#include "bench/run/prepare_device.h"
#include "comm/world.h"
#include "models/graph.h"

namespace nearmetal {

/// Takes what fits on every rank, where the batch is to be found; collective. `graph`: what this
/// rank computes. Throws std::runtime_error where not even one sample fits.
void settle_batch(PreparedDevice& device, const Graph& graph, const KernelSource& kernels,
                  World& world, const Terminal& terminal);

}  // namespace nearmetal
