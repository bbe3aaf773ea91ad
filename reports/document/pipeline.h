// The stages of a pipeline: of each from its rank, and of all together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/pipeline_schedule.h"
#include "reports/document/maybe.h"

namespace nearmetal {

/// A rank as a stage of a replica.
struct RankStage {
  int64_t stage = 0;
  int64_t replica = 0;
  std::string first_node, last_node;  // of the network, that it computes
  int64_t parameters = 0;
  // The memory that its program takes on the device, or would take by the other schedule.
  Maybe<int64_t> gpipe_bytes{}, one_forward_one_backward_bytes{};
  Maybe<PipelineSeconds> seconds{};  // the mean over the window
  int64_t boundary_bytes = 0;  // of a micro-batch to the stage behind, and back; 0: the last stage
  Maybe<double> boundary_seconds{};      // until known values were there, with nothing else on
  std::optional<bool> boundary_exact{};  // null: not tested
  std::vector<TaskMark> marks{};         // of one step, by the rank's own clock, from 0 on

  bool operator==(const RankStage&) const = default;
};

/// The bubble: the share of the stages' time in which they compute nothing.
struct PipelineBubble {
  Maybe<double> measured;   // 1 - sum of busy / sum of span, of the first replica's stages
  Maybe<double> simulated;  // of the same schedule, with these stages' mean times and no transfers
  // With each task's own time, and transfers as long as the lesser boundary_seconds of both stages.
  Maybe<double> simulated_with_transfers;
  double ideal = 0;  // (stages - 1) / (micro-batches + stages - 1): of equal stages

  bool operator==(const PipelineBubble&) const = default;
};

/// The figures of the stages of a run together.
struct PipelineFigures {
  std::string library;  // for values and gradients between stages, with its version
  int64_t stages = 1;
  int64_t replicas = 1;
  PipelineBubble bubble;

  bool operator==(const PipelineFigures&) const = default;
};

}  // namespace nearmetal
