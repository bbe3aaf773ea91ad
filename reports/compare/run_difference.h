// The difference between the runs of two sides, by the way in which they were taken.
#pragma once

#include <optional>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/statistics/sessions.h"

namespace nearmetal {

/// Runs of one arm that count, in order of their start.
struct CountedRuns {
  std::vector<const SetRun*> runs;
  std::vector<double> values;  // of the metric, above 0
};

struct RunDifference {
  Method method = Method::welch;
  LogEstimate estimate;          // ln(new / base)
  std::vector<RunGroup> groups;  // whose means the estimate is made of
};

/// The logarithms of the values by session, in order of the sessions' names.
Sessions sessions_of(const CountedRuns& side);

/// Whether both sides are of the same sessions.
bool share_sessions(const std::vector<const SetRun*>& base, const std::vector<const SetRun*>& next);

/// Estimates the difference from means of sessions if there are enough to know how sessions differ
/// (`others`: runs of neither side that show it), else from pairs, else from two samples. None for
/// fewer than 2 runs a side, and where nothing varies.
std::optional<RunDifference> run_difference(const CountedRuns& base, const CountedRuns& next,
                                            const CountedRuns& others, bool base_can_grow);

}  // namespace nearmetal
