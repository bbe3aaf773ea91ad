#include "bench/run/stage_report.h"

#include <span>

#include "bench/run/trainer.h"
#include "models/pipeline_schedule.h"

namespace nearmetal {
namespace {

// Means over the window.
PipelineSeconds stage_seconds(std::span<const StepRecord> window) {
  PipelineSeconds mean;
  for (const StepRecord& step : window) {
    mean.span += step.pipeline.span;
    mean.forward += step.pipeline.forward;
    mean.backward += step.pipeline.backward;
    mean.waiting += step.pipeline.waiting;
    mean.sending += step.pipeline.sending;
  }
  for (double* part : {&mean.span, &mean.forward, &mean.backward, &mean.waiting, &mean.sending}) {
    *part /= static_cast<double>(window.size());
  }
  return mean;
}

}  // namespace

void fill_stage(const RunConfig& config, const RankResult& result, Run& run, Rank& rank) {
  if (!result.prepared || !result.prepared->stage) return;
  run.pipeline = {.library = result.prepared->stage_library,
                  .stages = config.pipeline,
                  .replicas = replicas_of(config, run.world_size),
                  .bubble = {}};
  PipelineBubble& bubble = run.pipeline->bubble;
  for (Maybe<double>* share :
       {&bubble.measured, &bubble.simulated, &bubble.simulated_with_transfers}) {
    *share = Unknown{"the run ended before"};
  }
  bubble.ideal =
      ideal_bubble(static_cast<int>(config.pipeline), static_cast<int>(config.micro_batches));
  RankStage& stage = rank.stage.emplace(*result.prepared->stage);
  stage.seconds = Unknown{"the run ended before"};
  stage.boundary_seconds = Unknown{"the run ended before"};
  if (result.trained) {
    const std::span window = steps_of_window(*result.trained);
    if (!window.empty()) stage.seconds = stage_seconds(window);
  }
  if (result.checks.boundary_test) {
    stage.boundary_seconds = result.checks.boundary_test->seconds;
    stage.boundary_exact = result.checks.boundary_test->exact;
  }
  stage.marks = result.checks.marks;
  const double begin = stage.marks.empty() ? 0 : stage.marks.front().begin_seconds;
  for (TaskMark& mark : stage.marks) {
    mark.begin_seconds -= begin;
    mark.end_seconds -= begin;
  }
}

}  // namespace nearmetal
