#include <algorithm>

#include "reports/merge/merge.h"

namespace nearmetal {
namespace {

// The times of the first replica's stages, in their order; empty where one of them is not known.
std::vector<StageSeconds> seconds_of_stages(const Run& run, int64_t stages) {
  std::vector<StageSeconds> seconds;
  for (int64_t s = 0; s < stages && s < std::ssize(run.ranks); ++s) {
    const std::optional<RankStage>& stage = run.ranks[s].stage;
    if (!stage || !stage->seconds) return {};
    seconds.push_back(*stage->seconds);
  }
  return seconds;
}

// Seconds between each stage and the one behind; empty where one was not tested. Both sides of a
// boundary measure at least its transfer: either may have waited for the other, or for its second
// boundary.
std::vector<double> seconds_of_boundaries(const Run& run, int64_t stages) {
  std::vector<double> seconds;
  for (int64_t s = 0; s + 1 < stages; ++s) {
    const Maybe<double>& here = run.ranks.at(s).stage->boundary_seconds;
    const Maybe<double>& behind = run.ranks.at(s + 1).stage->boundary_seconds;
    if (!here || !behind) return {};
    seconds.push_back(std::min(*here, *behind));
  }
  return seconds;
}

}  // namespace

PipelineBubble pipeline_bubble(Schedule schedule, int64_t micro_batches,
                               std::span<const StageSeconds> stages,
                               std::span<const double> transfers) {
  double busy = 0, span = 0;
  std::vector<StageTimes> times;
  for (const StageSeconds& stage : stages) {
    busy += stage.busy();
    span += stage.span;
    const auto count = static_cast<double>(micro_batches);
    times.push_back({stage.forward / count, stage.backward / count});
  }
  const auto simulated = [&] {
    return std::max(0.0,
                    bubble_of(simulate_pipeline(schedule, times, static_cast<int>(micro_batches))));
  };
  PipelineBubble bubble;
  if (span > 0) bubble.measured = std::clamp(1 - busy / span, 0.0, 1.0);
  bubble.simulated = simulated();
  bubble.simulated_with_transfers = Unknown{"not every boundary was tested"};
  if (transfers.size() + 1 == stages.size()) {
    for (size_t i = 0; i < transfers.size(); ++i) times[i].transfer_seconds = transfers[i];
    bubble.simulated_with_transfers = simulated();
  }
  bubble.ideal = ideal_bubble(static_cast<int>(stages.size()), static_cast<int>(micro_batches));
  return bubble;
}

void merge_pipeline(const RunConfig& config, Run& run) {
  if (!run.pipeline) return;
  const std::vector<StageSeconds> stages = seconds_of_stages(run, config.pipeline);
  if (stages.empty()) return;
  run.pipeline->bubble = pipeline_bubble(config.schedule, config.micro_batches, stages,
                                         seconds_of_boundaries(run, config.pipeline));
}

}  // namespace nearmetal
