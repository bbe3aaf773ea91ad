// One row of a comparison: the runs of two arms, by one metric.
#pragma once

#include <span>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/compare/run_difference.h"
#include "reports/statistics/inference.h"

namespace nearmetal {

/// What these runs take each, on the average.
Maybe<double> mean_run_seconds(std::span<const SetRun* const> runs);

/// The complete runs of one arm by one metric.
SideSummary summary_of_arm(const RunArm& arm, const Metric& metric);

/// Those of Run::costs that are asked for; none of an arm without runs.
std::vector<const Metric*> cost_metrics(const RunArm& arm);

/// Whether it is complete, and tells how fast it was.
bool has_throughput(const SetRun& run);

/// Samples/s of such runs of an arm.
Sessions throughput_sessions(const RunArm& arm);

/// The geometric mean of the means of sessions.
double mean_of(const Sessions& sessions);

/// A value whose logarithm moves with those of these means, each by its weight. Its interval is
/// unknown where one of them has too few runs or sessions for an error.
Estimate estimate_around(double value, std::span<const SessionTerm> terms,
                         double confidence = side_confidence);
/// The same of mean_of() such runs, and of that over another.
Estimate mean_estimate(const Sessions& runs, double confidence = side_confidence);
Estimate ratio_estimate(const Sessions& runs, const Sessions& base,
                        double confidence = side_confidence);

/// "1413 [1406, 1420]", the mean alone where there is no interval, or "-". Of two or three runs,
/// whose interval says little, the median and the range: "1413 (1406 to 1420)".
std::string mean_text(const SideSummary& side, const Metric& metric);

/// Whether that is a median; and what tells so.
bool has_few_runs(const SideSummary& side);
inline constexpr const char* few_runs_text =
    "fewer than 4 runs are shown as median (least to most), without an interval: take 5";

std::vector<LeftOut> left_out_of(const RunArm& arm, const Metric& metric);

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

}  // namespace nearmetal
