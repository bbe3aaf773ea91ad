// What a rank exchanges with others: gradients with its replicas, by the way to sum them that was
// asked for or the fastest, and values with the stages of a pipeline beside its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/cli/output.h"
#include "bench/run/prepare_device.h"
#include "comm/join_ranks.h"
#include "comm/nccl.h"
#include "comm/world.h"
#include "models/pipeline_cuts.h"
#include "models/pipeline_schedule.h"
#include "models/program.h"
#include "reports/document/communication.h"
#include "reports/document/types.h"

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
/// asked for or that is fastest, and ends the others. Throws JobFailure where the ranks have other
/// libraries, or other memory layouts of their gradients.
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
/// that goes with them. Collective; the program is left with the first candidate. Throws JobFailure
/// on all ranks once `stop` is not 0 on one.
std::vector<TriedAllReduce> try_all_reduces(World& world, Program& program,
                                            std::span<const Exchange> candidates,
                                            int64_t bucket_bytes, std::span<const float> parameters,
                                            const std::atomic<int>& stop,
                                            const TryLength& length = {});

/// The one with the shortest step, of equal ones the first.
template <class Tried>
const Tried& fastest(const std::vector<Tried>& tried) {
  return *std::ranges::min_element(tried, {}, &Tried::step_seconds);
}

/// "--all-reduce auto takes host memory: 24.70 ms instead of 25.20 ms"; empty where nothing was
/// tried.
std::string choice_text(const std::vector<TriedAllReduce>& tried);

/// A rank as a stage of a pipeline.
struct RankPipeline {
  std::unique_ptr<World> stages;    // of the rank's replica, in their order
  std::unique_ptr<World> replicas;  // of the rank's stage
  PipelineStage part;
};

/// Cuts the network by times measured on rank 0, unless cuts were asked for: then the settings name
/// them. Collective. Throws as Backend::prepare() does, and for a stop, on all ranks.
void choose_cuts(RankTask& task);

/// Where cuts are settled; collective. Null without a pipeline.
std::unique_ptr<RankPipeline> join_pipeline(const PreparedDevice& device, World& world);

/// NCCL's names of the groups of a replica's stages; collective over them.
std::vector<StageGroups> stage_groups(World& stages, Nccl& nccl);

RankStage prepared_stage(const RankPipeline& pipeline, const Program& program);

/// Known values through all boundaries, both ways; collective over the stages.
BoundaryTest test_boundaries(RankPipeline& pipeline, StageLinks& links, const Program& program);

}  // namespace nearmetal
