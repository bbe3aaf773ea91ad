// A rank as a stage of a pipeline: its part of the network, and the ranks that it works with.
#pragma once

#include <memory>
#include <vector>

#include "bench/cli/output.h"
#include "bench/run/prepare_device.h"
#include "comm/join_ranks.h"
#include "comm/nccl.h"
#include "comm/world.h"
#include "models/pipeline_cuts.h"
#include "models/pipeline_schedule.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

struct RankPipeline {
  std::unique_ptr<World> stages;    // of the rank's replica, in their order
  std::unique_ptr<World> replicas;  // of the rank's stage
  PipelineStage part;
};

/// Cuts the network by times measured on rank 0, unless cuts were asked for: then the settings name
/// them. Collective. Throws as Backend::prepare() does, on all ranks.
void settle_cuts(PreparedDevice& device, const KernelSource& kernels, World& world,
                 const Terminal& terminal);

/// Where cuts are settled; collective. Null without a pipeline.
std::unique_ptr<RankPipeline> join_pipeline(const PreparedDevice& device, World& world);

/// NCCL's names of the groups of a replica's stages; collective over them.
std::vector<StageGroups> stage_groups(World& stages, Nccl& nccl);

/// The facts of a stage before it trains.
RankStage prepared_stage(const RankPipeline& pipeline, const Program& program);

/// Known values through all boundaries, both ways; collective over the stages.
BoundaryTest test_boundaries(RankPipeline& pipeline, StageLinks& links, const Program& program);

}  // namespace nearmetal
