#include "reports/compare/run_difference.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "reports/compare/run_notes.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// The deviation of one run, or pair, from that of their mean.
RunGroup group_of(const LogEstimate& mean, size_t runs, bool can_grow) {
  return {mean.standard_error * std::sqrt(static_cast<double>(runs)), static_cast<int64_t>(runs),
          can_grow};
}

// Below this p of trend_p() runs are taken to follow one: independent runs do in 1 %.
constexpr double trend_below = 0.01;

// Of runs of one session that follow a trend: by least squares of ln(run) on order and side, as a
// change from run to run that both sides share, as where a machine warms up, is no difference.
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
    const std::vector<double> logs = logarithms(sides[i]);
    std::vector<double> order;
    for (const SetRun* run : (i == 0 ? base : next).runs) {
      order.push_back(static_cast<double>(std::ranges::lower_bound(starts, run->run.started_at) -
                                          starts.begin()));
    }
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

// The side without one of its runs.
CountedRuns without(CountedRuns side, size_t at) {
  side.runs.erase(side.runs.begin() + static_cast<std::ptrdiff_t>(at));
  side.values.erase(side.values.begin() + static_cast<std::ptrdiff_t>(at));
  return side;
}

// The reason for doubt where the verdict would be another without one run that lies far from the
// others.
std::optional<std::string> depends_on_a_run(const ComparisonRow& row, const ComparedSides& sides) {
  constexpr size_t fewest = 5;
  const auto& [base, next, metric, options] = sides;
  if (std::min(base.runs.size(), next.runs.size()) < fewest) return std::nullopt;
  const bool pairs = row.method == Method::paired;
  for (const CountedRuns* side : {&base, &next}) {
    const std::vector<bool> far = outliers(side->values);
    for (size_t i = 0; i < far.size(); ++i) {
      if (!far[i]) continue;
      const CountedRuns left = pairs || side == &base ? without(base, i) : base;
      const CountedRuns right = pairs || side == &next ? without(next, i) : next;
      const auto found = run_difference({left, right, metric, options}, {});
      if (!found) continue;
      const Verdict other = verdict_of(found->estimate, metric, options.rule);
      if (other == row.verdict) continue;
      const Interval factors = interval(found->estimate, 1 - 2 * options.rule.alpha);
      return "without the run of " + side->runs[i]->source + " started at " +
             side->runs[i]->run.started_at + " the difference is " +
             signed_percent(std::expm1(found->estimate.value),
                            {factors.lower - 1, factors.upper - 1}) +
             ", " + to_string(other) + ", and with it " + to_string(row.verdict) +
             ": take more runs, or leave that one out (--since) where you know why";
    }
  }
  return std::nullopt;
}

// The same where most runs say the opposite of the mean.
std::optional<std::string> is_contradicted(const ComparisonRow& row) {
  constexpr double rank_test_level = 0.05;
  const double median = row.median_difference.value.value_or(0);
  const bool opposite = median * *row.difference < 0;
  if (!opposite || row.rank_test_p.value.value_or(1) >= rank_test_level) return std::nullopt;
  return "the mean differs by " + signed_percent(*row.difference) + ", most runs by " +
         signed_percent(median) + ", and the rank test sees a difference";
}

// The same where both sides change as they go, one after the other, or in pairs of which one is
// always the first: such runs do not tell whether the second went on where the first ended, and a
// verdict must hold in both cases.
std::optional<std::string> depends_on_the_trend(const ComparisonRow& row,
                                                const ComparedSides& sides) {
  const auto& [base, next, metric, options] = sides;
  Verdict as_one = row.verdict, anew = row.verdict;
  if (row.method == Method::trend && one_after_other(base.runs, next.runs)) {
    anew = verdict_of(difference(*log_mean(base.values), *log_mean(next.values)), metric,
                      options.rule);
  } else if (row.method == Method::paired && one_side_is_first(base.runs, next.runs)) {
    if (const auto found = difference_beside_trend(base, next))
      as_one = verdict_of(found->estimate, metric, options.rule);
  }
  if (as_one == anew) return std::nullopt;
  return std::string("both sides change as they go: ") + to_string(as_one) +
         " if the second went on where the first ended, " + to_string(anew) +
         " if each began anew; take the sides by turns, each first as often";
}

// The same where one side alone changes as it goes, or neighbours are alike: a mean depends on when
// its runs were taken.
std::optional<std::string> depends_on_time(const ComparisonRow& row, const CountedRuns& base,
                                           const CountedRuns& next) {
  if (row.method != Method::welch) return std::nullopt;
  const std::vector<double> sides[] = {base.values, next.values};
  if (alike_neighbours_p(sides) < trend_below) {
    return "runs are like their neighbours in time (serial correlation), so that they tell less "
           "than as many independent ones: take the sides by turns";
  }
  for (const CountedRuns* side : {&base, &next}) {
    const std::vector<double> values[] = {side->values};
    if (trend_p(values) >= trend_below) continue;
    const SideSummary& summary = side == &base ? row.base_side : row.new_side;
    return "the runs of " + summary.name + " change as they go, from " +
           significant(side->values.front()) + " to " + significant(side->values.back()) +
           ", and those of the other side do not: take the sides by turns";
  }
  return std::nullopt;
}

}  // namespace

Sessions sessions_of(const CountedRuns& side) {
  Sessions sessions;
  for (size_t i = 0; i < side.runs.size(); ++i) {
    sessions[side.runs[i]->session].push_back(std::log(side.values[i]));
  }
  return sessions;
}

std::vector<double> ComparedSides::log_ratios() const {
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

Verdict verdict_of(const LogEstimate& estimate, const Metric& metric, const DecisionRule& rule) {
  const Interval found = log_interval(goodness(estimate, metric), 1 - 2 * rule.alpha);
  const double margin = -log_margin(rule);
  if (found.upper < -margin) return Verdict::slower;
  if (found.lower > margin) return Verdict::faster;
  const bool within = found.lower > -margin && found.upper < margin;
  return within ? Verdict::equivalent : Verdict::inconclusive;
}

std::optional<RunDifference> run_difference(const ComparedSides& sides, const CountedRuns& others) {
  const auto& [base, next, metric, options] = sides;
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
    const auto estimate = mean_of_logs(sides.log_ratios());
    if (!estimate) return std::nullopt;
    return RunDifference{
        Method::paired, *estimate, {group_of(*estimate, next.values.size(), true)}};
  }
  if (const auto found = difference_beside_trend(base, next)) return found;
  const auto of_base = log_mean(base.values), of_new = log_mean(next.values);
  if (!of_base || !of_new) return std::nullopt;
  return RunDifference{Method::welch,
                       difference(*of_base, *of_new),
                       {group_of(*of_base, base.values.size(), options.base_can_grow),
                        group_of(*of_new, next.values.size(), true)}};
}

std::optional<std::string> doubt_of(const ComparisonRow& row, const ComparedSides& sides) {
  if (row.method == Method::sessions) return std::nullopt;
  auto doubt = depends_on_a_run(row, sides);
  if (!doubt) doubt = is_contradicted(row);
  if (!doubt) doubt = depends_on_the_trend(row, sides);
  if (!doubt) doubt = depends_on_time(row, sides.base, sides.next);
  return doubt;
}

}  // namespace nearmetal
