#include "reports/compare/run_difference.h"

#include <algorithm>
#include <cmath>

#include "reports/compare/run_notes.h"
#include "reports/statistics/robust.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// The deviation of one run, or pair, from that of their mean.
RunGroup group_of(const LogEstimate& mean, size_t runs, bool can_grow) {
  return {mean.standard_error * std::sqrt(static_cast<double>(runs)), static_cast<int64_t>(runs),
          can_grow};
}

}  // namespace

Sessions sessions_of(const CountedRuns& side) {
  Sessions sessions;
  for (size_t i = 0; i < side.runs.size(); ++i) {
    sessions[side.runs[i]->session].push_back(std::log(side.values[i]));
  }
  return sessions;
}

std::vector<double> log_ratios(const CountedRuns& base, const CountedRuns& next) {
  std::vector<double> ratios;
  for (size_t i = 0; i < base.values.size(); ++i) {
    ratios.push_back(std::log(next.values[i] / base.values[i]));
  }
  return ratios;
}

LogEstimate goodness(LogEstimate estimate, const Metric& metric) {
  if (!metric.higher_is_better) estimate.value = -estimate.value;
  return estimate;
}

Verdict verdict_of(const LogEstimate& goodness, const DecisionRule& rule) {
  const Interval found = log_interval(goodness, 1 - 2 * rule.alpha);
  const double margin = -log_margin(rule);
  if (found.upper < -margin) return Verdict::slower;
  if (found.lower > margin) return Verdict::faster;
  const bool within = found.lower > -margin && found.upper < margin;
  return within ? Verdict::equivalent : Verdict::inconclusive;
}

std::optional<RunDifference> difference_beside_trend(const CountedRuns& base,
                                                     const CountedRuns& next) {
  const std::vector<double> sides[] = {base.values, next.values};
  if (trend_p(sides) >= trend_below) return std::nullopt;
  std::vector<std::string> starts;
  for (const CountedRuns* side : {&base, &next}) {
    for (const SetRun* run : side->runs) starts.push_back(run->run.started_at);
  }
  std::ranges::sort(starts);
  double squares = 0, products = 0, logs_squared = 0, order_mean[2] = {}, log_mean[2] = {};
  for (const int i : {0, 1}) {
    std::vector<double> order, logs;
    for (const SetRun* run : (i == 0 ? base : next).runs) {
      order.push_back(static_cast<double>(std::ranges::lower_bound(starts, run->run.started_at) -
                                          starts.begin()));
    }
    for (const double value : sides[i]) logs.push_back(std::log(value));
    order_mean[i] = mean(order);
    log_mean[i] = mean(logs);
    for (size_t run = 0; run < logs.size(); ++run) {
      const double x = order[run] - order_mean[i], y = logs[run] - log_mean[i];
      squares += x * x;
      products += x * y;
      logs_squared += y * y;
    }
  }
  const auto n = static_cast<double>(base.values.size()),
             m = static_cast<double>(next.values.size());
  const double slope = products / squares, apart = order_mean[1] - order_mean[0];
  const double noise = std::max(0.0, logs_squared - slope * products) / (n + m - 3);
  if (!(noise > 0)) return std::nullopt;
  const double error = std::sqrt(noise * (1 / n + 1 / m + apart * apart / squares));
  RunDifference found{
      Method::trend, {log_mean[1] - log_mean[0] - slope * apart, error, n + m - 3}, {}};
  found.trend = slope;
  return found;
}

std::optional<RunDifference> run_difference(const CountedRuns& base, const CountedRuns& next,
                                            const CountedRuns& others, bool base_can_grow) {
  if (std::min(base.values.size(), next.values.size()) < 2) return std::nullopt;
  const Sessions of_base_sessions = sessions_of(base), of_new_sessions = sessions_of(next);
  const auto by_sessions =
      session_difference(of_base_sessions, of_new_sessions, sessions_of(others));
  if (by_sessions) {
    return RunDifference{Method::sessions, by_sessions->estimate, {}, by_sessions};
  }
  // Runs of several sessions are no independent sample.
  if (std::max(of_base_sessions.size(), of_new_sessions.size()) > 1) return std::nullopt;
  if (are_pairs(base.runs, next.runs)) {
    const auto estimate = mean_of_logs(log_ratios(base, next));
    if (!estimate) return std::nullopt;
    return RunDifference{
        Method::paired, *estimate, {group_of(*estimate, next.values.size(), true)}};
  }
  if (const auto found = difference_beside_trend(base, next)) return found;
  const auto of_base = log_mean(base.values), of_new = log_mean(next.values);
  if (!of_base || !of_new) return std::nullopt;
  return RunDifference{Method::welch,
                       difference(*of_base, *of_new),
                       {group_of(*of_base, base.values.size(), base_can_grow),
                        group_of(*of_new, next.values.size(), true)}};
}

}  // namespace nearmetal
