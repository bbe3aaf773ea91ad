#include "reports/document/job_samples.h"

#include <algorithm>

namespace nearmetal {
namespace {

double steps_within(const Rank& rank, int64_t first_step, const TimeSpan& time) {
  double begin = rank.window_start_unix_seconds.value_or(INFINITY);
  double steps = 0;
  for (size_t i = first_step; i < rank.step_seconds.size(); ++i) {
    const double end = begin + rank.step_seconds[i];
    const double within = std::min(end, time.end) - std::max(begin, time.begin);
    steps += std::clamp(within / rank.step_seconds[i], 0.0, 1.0);
    begin = end;
  }
  return steps;
}

}  // namespace

double samples_of_job(const RunConfig& config, double samples_of_ranks) {
  return samples_of_ranks / static_cast<double>(config.pipeline);
}

TimeSpan within_windows(std::span<const Rank> ranks, int64_t first_step, TimeSpan time) {
  for (const Rank& rank : ranks) {
    double end = rank.window_start_unix_seconds.value_or(INFINITY);
    time.begin = std::max(time.begin, end);
    for (size_t i = first_step; i < rank.step_seconds.size(); ++i) end += rank.step_seconds[i];
    time.end = std::min(time.end, end);
  }
  return time;
}

double samples_within(const RunConfig& config, std::span<const Rank> ranks, int64_t first_step,
                      const TimeSpan& time) {
  double steps = 0;
  for (const Rank& rank : ranks) steps += steps_within(rank, first_step, time);
  return samples_of_job(config, steps * static_cast<double>(step_samples(config)));
}

}  // namespace nearmetal
