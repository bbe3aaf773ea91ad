// The exchange of gradients of a rank: the way to sum them that was asked for, or the fastest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "models/program.h"
#include "reports/document/communication.h"

namespace nearmetal {

struct RankTask;

/// A way to sum the gradients.
struct Exchange {
  std::unique_ptr<AllReduce> all_reduce;
  const Collective* collective = nullptr;
};

/// The exchange that the configuration asks for, or several of which the fastest is to be found;
/// none where each rank trains for itself. Collective. A hierarchical one over a single host is
/// NCCL alone. `task` must outlive the result.
std::vector<Exchange> join_exchanges(const RankTask& task);

/// Puts the fastest of the candidates into the program's step, in buckets of the size that was
/// asked for or that is fastest, and ends the others.
Communication prepare_exchange(const RankTask& task, Program& program,
                               std::vector<Exchange>& candidates,
                               std::span<const float> parameters);

/// The length of a measurement in seconds, at least one step each.
struct TryLength {
  double warm_up = 2;     // of the GPU, once
  double settling = 0.5;  // of each turn, in which the clock follows the power
  double measured = 1;    // of each turn
};

/// Trains from `parameters` with the sums of each candidate by turns, from the first to the last
/// and back again, so that a drift cancels: long enough that a GPU at its power limit has the clock
/// that goes with them. Collective; the program is left with the first candidate.
std::vector<TriedAllReduce> try_all_reduces(World& world, Program& program,
                                            std::span<const Exchange> candidates,
                                            int64_t bucket_bytes, std::span<const float> parameters,
                                            const TryLength& length = {});

/// The one with the shortest step, of equal ones the first.
template <class Tried>
const Tried& fastest(const std::vector<Tried>& tried) {
  return *std::ranges::min_element(tried, {}, &Tried::step_seconds);
}

/// "--all-reduce auto takes host memory: 24.70 ms instead of 25.20 ms"; empty where nothing was
/// tried.
std::string choice_text(const std::vector<TriedAllReduce>& tried);

}  // namespace nearmetal
