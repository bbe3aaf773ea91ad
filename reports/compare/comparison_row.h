// One row of a comparison: the runs of two arms, by one metric.
#pragma once

#include <vector>

#include "reports/compare/compare.h"

namespace nearmetal {

/// The complete runs of one arm by one metric.
SideSummary summary_of_arm(const RunArm& arm, const Metric& metric);

/// Samples/s of its complete runs.
std::vector<double> throughputs(const RunArm& arm);

/// "1413 [1406, 1420]", the mean alone where there is no interval, or "-".
std::string mean_text(const SideSummary& side, const Metric& metric);

/// The disturbance that the monitor of a run saw, or why it saw nothing; empty: each rank was
/// alone, at steady clocks.
std::string disturbance_of(const SetRun& run);

/// Whether it saw other processes beside a rank.
bool was_shared(const SetRun& run);

/// A run that is not among them, and why.
struct LeftOut {
  std::string source;
  std::string metric;  // the one that it lacks; empty: the run is not complete
  std::string why;
};
std::vector<LeftOut> left_out_of(const RunArm& arm, const Metric& metric);

/// The reasons, each once: "2 runs of a.json, b.json are left out: failed (out of memory)".
std::vector<std::string> left_out_texts(const std::vector<LeftOut>& runs);

/// Both arms hold comparable runs. Those that are not complete are left out by that alone. Runs of
/// `others` are on neither side and tell how sessions differ.
ComparisonRow compare_arms(const RunArm& base, const RunArm& next, const Metric& metric,
                           const CompareOptions& options, const RunArm& others = {});

/// A row that holds a verdict and no figures.
ComparisonRow row_without_figures(const std::string& arm, const Metric& metric, Verdict verdict,
                                  const std::string& reason);

/// The mean of the rows' differences on the logarithm; rows have the metric, and estimates.
ComparisonRow geometric_mean_row(const std::vector<const ComparisonRow*>& rows,
                                 const Metric& metric, const DecisionRule& rule);

/// Whether two sides of complete runs, each in order of their start, were taken in pairs: the first
/// of each side, then the second of each, and so on, in any order within a pair. Drift, of heat or
/// clocks, cancels in pairs, adds noise where runs are mixed, and looks like a difference where one
/// side came after the other.
bool are_pairs(const std::vector<const SetRun*>& base, const std::vector<const SetRun*>& next);

/// The warnings of the runs, each kind once, however many jobs and ranks of a run gave it, in the
/// order in which they came.
std::vector<RunWarning> warnings_of(const std::vector<const SetRun*>& runs);

/// Adds the notes of a row with figures: a kind that is not measured, order in time, runs on both
/// sides, warnings of the runs, outliers, other plans or versions of the program, too few or too
/// short runs.
void add_run_notes(ComparisonRow& row, const std::vector<const SetRun*>& base,
                   const std::vector<const SetRun*>& next, const std::vector<double>& base_values,
                   const std::vector<double>& new_values);

}  // namespace nearmetal
