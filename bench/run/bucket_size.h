// Which size of gradient buckets makes the fastest step, as tried by the ranks themselves.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Trains a few steps from `parameters` with buckets of each size, from small to large and back
/// again, since a GPU's clock moves meanwhile; of each size the faster of the two. Collective: all
/// ranks get the same. The program then exchanges in buckets of the last size, after steps.
std::vector<TriedBucket> try_buckets(World& world, Program& program, AllReduce& all_reduce,
                                     std::span<const float> parameters);

const TriedBucket& fastest(const std::vector<TriedBucket>& tried);

/// "4 MiB 25.1 ms, all at once 27.0 ms"
std::string text_of(const std::vector<TriedBucket>& tried);

}  // namespace nearmetal
