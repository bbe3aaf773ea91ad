// The difference of the runs of two sides, by whichever method they allow, and when they leave no
// verdict, whatever their mean says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/compare/run_set.h"
#include "reports/statistics/inference.h"

namespace nearmetal {

/// Runs of one arm that count, in order of their start.
struct CountedRuns {
  SomeRuns runs;
  std::vector<double> values;  // of the metric, above 0
};

Sessions sessions_of(const CountedRuns& side);

struct ComparedSides {
  const CountedRuns& base;
  const CountedRuns& next;
  const Metric& metric;
  const CompareOptions& options;

  /// ln(new / base) of each pair.
  std::vector<double> log_ratios() const;
};

struct RunDifference {
  Method method = Method::welch;
  LogEstimate estimate;          // ln(new / base)
  std::vector<RunGroup> groups;  // more runs of which would narrow it
  std::optional<SessionDifference> of_sessions{};
  double trend = 0;  // change of the logarithm from run to run, of both sides
};

/// The same so that more is better.
LogEstimate goodness(LogEstimate estimate, const Metric& metric);

/// By its interval.
Verdict verdict_of(const LogEstimate& estimate, const Metric& metric, const DecisionRule& rule);

/// From means of sessions where a side has several, or `others`, runs of neither side, show how
/// they differ; else from pairs, else from two samples, beside their trend where they follow one.
/// None for fewer than 2 runs a side, and where nothing varies.
std::optional<RunDifference> run_difference(const ComparedSides& sides, const CountedRuns& others);

/// Why a row of runs of one session leaves no verdict: it would be another without one run that
/// lies far from the others, most runs contradict the mean, or it depends on when runs were taken.
/// None where it holds, and of several sessions. The row has its figures.
std::optional<std::string> doubt_of(const ComparisonRow& row, const ComparedSides& sides);

}  // namespace nearmetal
