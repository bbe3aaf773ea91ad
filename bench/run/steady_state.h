// Decides from step times when warm-up is over and the timed window may start.
#pragma once

#include <cstdint>
#include <span>

#include "reports/document/types.h"

namespace nearmetal {

/// Warm-up takes at least `minimum_steps`. It ends when the step times are steady, or else at
/// `maximum_steps` or after `maximum_seconds` (of steps), whichever is first; the report then says
/// that they were not.
struct WarmUpRule {
  int64_t minimum_steps = 3;
  int64_t maximum_steps = 30;
  double maximum_seconds = 30;
  double limit = 0.03;
};

/// At most ten times the minimum, or 30 s.
WarmUpRule warm_up_rule(const RunConfig& config);

/// The test looks at the last half of the steps so far, at least 3 and at most 64, so that slow
/// first steps drop out as warm-up goes on, whether a step takes 25 ms or 5 s. They are steady when
/// both
///  - the least-squares line over them changes by no more than `limit` of their mean (a trend), and
///  - the medians of their two halves differ by no more than that (a jump; hardly moved by
///  outliers).
/// The same numbers of the timed window itself, where drift is looked at again, are in StepTime.
WarmUp judge_warm_up(std::span<const double> step_seconds, const WarmUpRule& rule);

/// Whether the window may start, steady or not.
bool warm_up_is_over(std::span<const double> step_seconds, const WarmUp& judged);

}  // namespace nearmetal
