#include <algorithm>
#include <array>

#include "reports/merge/merge.h"

namespace nearmetal {
namespace {

// The first replica's stages in their order; empty where the times of one are not known.
std::vector<RankStage> timed_stages(const Run& run, int64_t count) {
  std::vector<RankStage> stages;
  for (int64_t s = 0; s < count && s < std::ssize(run.ranks); ++s) {
    const std::optional<RankStage>& stage = run.ranks[s].stage;
    if (!stage || !stage->seconds) return {};
    stages.push_back(*stage);
  }
  return stages;
}

StageTimes mean_times(const PipelineSeconds& seconds, int64_t micro_batches) {
  const auto count = static_cast<double>(micro_batches);
  return {seconds.forward / count, seconds.backward / count};
}

// Each task of a stage in its share of the marked step, scaled so that the passes together take
// their means; empty where no step was marked, or a pass of it has no length to share.
std::vector<double> task_seconds(const RankStage& stage) {
  const auto length = [](const TaskMark& mark) { return mark.end_seconds - mark.begin_seconds; };
  const auto pass = [](const TaskMark& mark) { return static_cast<size_t>(mark.task.pass); };
  const std::array means{stage.seconds->forward, stage.seconds->backward};
  std::array<double, 2> marked{};
  for (const TaskMark& mark : stage.marks) marked[pass(mark)] += length(mark);
  if (std::ranges::any_of(marked, [](double sum) { return !(sum > 0); })) return {};
  std::vector<double> seconds;
  for (const TaskMark& mark : stage.marks) {
    seconds.push_back(length(mark) * means[pass(mark)] / marked[pass(mark)]);
  }
  return seconds;
}

double simulated_bubble(const RunConfig& config, std::span<const StageTimes> times) {
  const auto marks =
      simulate_pipeline(config.schedule, times, static_cast<int>(config.micro_batches));
  return std::max(0.0, bubble_of(marks));
}

Maybe<double> bubble_with_transfers(const RunConfig& config, std::span<const RankStage> stages) {
  std::vector<StageTimes> times;
  for (const RankStage& stage : stages) {
    times.push_back({.task_seconds = task_seconds(stage)});
    if (std::ssize(times.back().task_seconds) != 2 * config.micro_batches) {
      return Unknown{"not every stage marked a step"};
    }
  }
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    const Maybe<double>& here = stages[i].boundary_seconds;
    const Maybe<double>& behind = stages[i + 1].boundary_seconds;
    if (!here || !behind) return Unknown{"not every boundary was tested"};
    // Both measure at least the transfer: either may have waited for the other, or for its second
    // boundary.
    times[i].transfer_seconds = std::min(*here, *behind);
  }
  return simulated_bubble(config, times);
}

}  // namespace

void merge_pipeline(const RunConfig& config, Run& run) {
  if (!run.pipeline) return;
  const std::vector<RankStage> stages = timed_stages(run, config.pipeline);
  if (stages.empty()) return;
  double busy = 0, span = 0;
  std::vector<StageTimes> means;
  for (const RankStage& stage : stages) {
    busy += stage.seconds->busy();
    span += stage.seconds->span;
    means.push_back(mean_times(*stage.seconds, config.micro_batches));
  }
  PipelineBubble& bubble = run.pipeline->bubble;
  if (span > 0) bubble.measured = std::clamp(1 - busy / span, 0.0, 1.0);
  bubble.simulated = simulated_bubble(config, means);
  bubble.simulated_with_transfers = bubble_with_transfers(config, stages);
  bubble.ideal =
      ideal_bubble(static_cast<int>(stages.size()), static_cast<int>(config.micro_batches));
}

}  // namespace nearmetal
