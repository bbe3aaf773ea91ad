#include "bench/run/steady_state.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr int64_t fewest_judged = 3;
constexpr int64_t most_judged = 64;

double halves_difference(std::span<const double> samples) {
  const size_t half = samples.size() / 2;
  return (median(samples.last(half)) - median(samples.first(half))) / mean(samples);
}

}  // namespace

WarmUp judge_warm_up(std::span<const double> step_seconds, const WarmUpRule& rule) {
  WarmUp result;
  result.steps = static_cast<int64_t>(step_seconds.size());
  result.minimum_steps = rule.minimum_steps;
  result.maximum_steps = rule.maximum_steps;
  result.maximum_seconds = rule.maximum_seconds;
  result.limit = rule.limit;
  if (result.steps < fewest_judged) {
    result.drift = result.halves_difference = Unknown{"fewer than 3 steps"};
    return result;
  }
  result.judged_steps = std::clamp(result.steps / 2, fewest_judged, most_judged);
  const auto judged = step_seconds.last(result.judged_steps);
  result.drift = relative_drift(judged).value_or(0);
  result.halves_difference = halves_difference(judged);
  result.steady = result.steps >= rule.minimum_steps && std::abs(*result.drift) <= rule.limit &&
                  std::abs(*result.halves_difference) <= rule.limit;
  return result;
}

bool warm_up_is_over(std::span<const double> step_seconds, const WarmUp& judged) {
  if (judged.steady) return true;
  if (judged.steps < judged.minimum_steps) return false;
  const double seconds = std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0);
  return judged.steps >= judged.maximum_steps || seconds >= judged.maximum_seconds;
}

WarmUpRule warm_up_rule(const RunConfig& config) {
  WarmUpRule rule;
  rule.minimum_steps = config.warmup.value();
  rule.maximum_steps = std::max<int64_t>(10 * rule.minimum_steps, 3);
  return rule;
}

}  // namespace nearmetal
