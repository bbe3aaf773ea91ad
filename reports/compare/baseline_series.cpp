#include "reports/compare/baseline_series.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "reports/compare/compare.h"
#include "reports/compare/gate.h"
#include "reports/statistics/inference.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr size_t shown_digits = 12;     // of a fingerprint
constexpr int64_t most_planned = 1000;  // runs a side

using Throughputs = std::vector<double>;

Maybe<int64_t> runs_needed(double deviation, double drop, const DecisionRule& rule) {
  for (int64_t runs = GateOptions{}.minimum_runs; runs <= most_planned; ++runs) {
    const std::vector<RunGroup> groups(2, {deviation, runs});
    if (power_of_regression(groups, std::log1p(-drop), rule) >= needed_runs_power) return runs;
  }
  return Unknown{"more than " + std::to_string(most_planned)};
}

void summarise(const Throughputs& values, const DecisionRule& rule, BaselineSeries& series) {
  series.runs = std::ssize(values);
  series.throughput = series.lower = series.upper = Unknown{"no run is complete"};
  if (!values.empty()) {
    series.throughput = geometric_mean(values);
    series.lower = series.upper = Unknown{"one run has no interval"};
  }
  if (const auto estimate = log_mean(values)) {
    const Interval found = interval(*estimate, side_confidence);
    series.lower = found.lower;
    series.upper = found.upper;
  }
  series.spread = Unknown{"it takes 2 runs that differ"};
  const auto spread = run_spread(values, {});
  if (!spread || spread->deviation == 0) return;
  series.spread = spread->deviation;
  for (const double beyond : {0.25, 0.5, 1.0}) {
    const double drop = rule.margin * (1 + beyond);
    series.needed_runs.push_back({drop, runs_needed(spread->deviation, drop, rule)});
  }
}

}  // namespace

std::vector<BaselineSeries> series_of(const RunSet& set, const std::string& baseline,
                                      const DecisionRule& rule) {
  std::map<std::pair<std::string, std::string>, std::pair<BaselineSeries, Throughputs>> found;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      const std::string fingerprint = context_sha256(run.key).substr(0, shown_digits);
      auto& [series, values] = found[{fingerprint, arm.name}];
      series.baseline = baseline;
      series.fingerprint = fingerprint;
      series.arm = arm.name;
      series.sample = run.run.sample;
      const std::string& start = run.run.started_at;
      if (series.first.empty() || start < series.first) series.first = start;
      series.last = std::max(series.last, start);
      const bool counts = run.run.status == Status::complete && run.run.throughput;
      if (counts) values.push_back(*run.run.throughput);
      if (!counts) ++series.left_out;
    }
  }
  std::vector<BaselineSeries> all;
  for (auto& [key, of_key] : found) {
    summarise(of_key.second, rule, of_key.first);
    all.push_back(std::move(of_key.first));
  }
  return all;
}

}  // namespace nearmetal
