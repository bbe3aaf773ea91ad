// That the ranks of a job train one and the same network.
#pragma once

#include <span>

#include "comm/world.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

// Every rank calls each of these.

/// Throws std::runtime_error where the seed gave other parameters than on rank 0.
void require_same_parameters(World& world, std::span<const float> parameters);

/// Compares parameters and momentum of all ranks, bit by bit; the run fails where they differ.
void prove_replicas(World& world, Program& program, Run& run);

/// Sums known values through the buckets of the run: the run fails where a sum is wrong. Their
/// times, with nothing else going on, go into run.communication beside what was `found` already.
/// The gradient is lost.
void measure_exchange(AllReduce& all_reduce, Communication found, Run& run);

}  // namespace nearmetal
