#include "bench/run/step_figures.h"

#include <algorithm>
#include <cmath>

#include "models/probe.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr double vanished_below = 0.1;  // of the value at the window's start

template <class T, class U>
Maybe<T> known_or(const std::optional<U>& value, const char* reason) {
  if (!value) return Unknown{reason};
  return T(*value);
}

// Of finite values, where there are some; one step may be far from its neighbours.
double median_of(std::span<const StepRecord> steps, float StepRecord::*value) {
  std::vector<double> values;
  for (const StepRecord& step : steps) {
    if (std::isfinite(step.*value)) values.push_back(step.*value);
  }
  return values.empty() ? NAN : median(values);
}

}  // namespace

std::span<const StepRecord> steps_of_window(const TrainerResult& result) {
  if (!result.warm_up) return {};
  return std::span(result.steps).subspan(result.window_first_step);
}

int64_t skipped_updates(std::span<const StepRecord> steps) {
  return std::count_if(steps.begin(), steps.end(),
                       [](const StepRecord& step) { return step.update_skipped; });
}

std::optional<TimedWindow> window_of(const TrainerResult& result, int64_t batch) {
  const std::span steps = steps_of_window(result);
  if (steps.empty()) return std::nullopt;
  TimedWindow window{.first_step = result.window_first_step,
                     .steps = std::ssize(steps),
                     .samples = std::ssize(steps) * batch};
  for (const StepRecord& step : steps) window.seconds += step.seconds;
  return window;
}

std::optional<std::string> failure_of(const TrainerResult& result) {
  if (result.failed_step) {
    return "the loss of step " + std::to_string(*result.failed_step) +
           " is not finite; a lower --learning-rate or --loss-scale may help";
  }
  const auto window = steps_of_window(result);
  if (!window.empty() && skipped_updates(window) == std::ssize(window)) {
    return "the network was not trained: every update was skipped, as no gradient was finite; "
           "a lower --learning-rate or --loss-scale may help";
  }
  if (!result.failure.empty()) return result.failure;
  return std::nullopt;
}

// From the first tenth of the window to the last.
bool fell(std::span<const StepRecord> window, float StepRecord::*value) {
  const size_t tenth = (window.size() + 9) / 10;
  return median_of(window.last(tenth), value) <
         vanished_below * median_of(window.first(tenth), value);
}

StepTime step_time_of(std::span<const double> seconds) {
  StepTime time;
  time.median_seconds = median(seconds);
  time.p95_seconds = quantile(seconds, 0.95);
  time.p99_seconds = quantile(seconds, 0.99);
  time.jitter_seconds = robust_deviation(seconds);
  time.drift = known_or<double>(relative_drift(seconds), "fewer than 2 steps");
  time.autocorrelation =
      known_or<double>(lag1_autocorrelation(seconds), "fewer than 3 steps, or all equal");
  const auto squared_error = variance_of_mean(seconds);
  time.relative_standard_error = time.effective_steps =
      Unknown{"fewer than 10 steps, or all equal"};
  if (squared_error) {
    time.relative_standard_error = std::sqrt(*squared_error) / mean(seconds);
    time.effective_steps = variance(seconds) / *squared_error;
  }
  return time;
}

StepProfile step_profile(const Profile& profile, double step_seconds) {
  StepProfile result;
  result.entries = profile.entries;
  result.step_seconds = step_seconds;
  for (const ProfileEntry& entry : profile.entries) result.sum_seconds += entry.seconds;
  const double copy = profile.copy_bytes_per_second;
  const double matrix = profile.matrix_flops_per_second;
  const Unknown unmeasured{"the backend does not measure this ceiling"};
  result.copy_bytes_per_second = copy > 0 ? Maybe(copy) : unmeasured;
  result.matrix_flops_per_second = matrix > 0 ? Maybe(matrix) : unmeasured;
  if (copy <= 0 || matrix <= 0) {
    result.roofline_seconds = result.share_of_roofline = unmeasured;
    return result;
  }
  double roofline = 0;
  for (const ProfileEntry& entry : profile.entries) {
    roofline += floor_seconds(entry.bytes, entry.flops, {copy, matrix});
  }
  result.roofline_seconds = roofline;
  result.share_of_roofline = roofline / step_seconds;
  return result;
}

}  // namespace nearmetal
