// The difference of the runs of two sides, by whichever method they allow, when they leave no
// verdict, whatever their mean says, and what else a reader should know of them.
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

/// Runs a side, below which the rank test shows nothing, and an interval little.
inline constexpr int64_t fewest_for_rank_test = 4;

/// What disturbed a run by its monitor, or why that saw nothing; empty: alone, at steady clocks.
std::string disturbance_of(const SetRun& run);

/// Whether it saw other processes beside a rank.
bool was_shared(const SetRun& run);

/// A run that is not among them, and why.
struct LeftOut {
  std::string source;
  std::string metric;  // the one that it lacks; empty: the run is not complete
  std::string why;
};

/// The reasons, each once: "2 runs of a.json, b.json are left out: failed (out of memory)".
std::vector<std::string> left_out_texts(const std::vector<LeftOut>& runs);

/// Whether all runs of one side, each in order of their start, came after those of the other.
bool one_after_other(const SomeRuns& base, const SomeRuns& next);

/// Whether two sides of complete runs, each in order of their start, were taken in pairs: the first
/// of each side, then the second of each, and so on, in any order within a pair. Drift, of heat or
/// clocks, cancels in pairs, adds noise where runs are mixed, and looks like a difference where one
/// side came after the other.
bool are_pairs(const SomeRuns& base, const SomeRuns& next);
/// Whether it is the same side in all pairs.
bool one_side_is_first(const SomeRuns& base, const SomeRuns& next);

/// The warnings of the runs, each kind once, however many jobs and ranks of a run gave it, in the
/// order in which they came.
std::vector<RunWarning> warnings_of(const SomeRuns& runs);

/// "2 runs", "2 of 5 runs, 1.74 to 1.99 CPUs", "2 runs, quoting the worst".
std::string extent_text(const RunWarning& found, const std::string& runs);

/// Adds the notes of a row with figures: a kind that is not measured, order in time, runs on both
/// sides, warnings, outliers, other plans or versions of the program, too few or too short runs.
void add_run_notes(ComparisonRow& row, const CountedRuns& base, const CountedRuns& next);

}  // namespace nearmetal
