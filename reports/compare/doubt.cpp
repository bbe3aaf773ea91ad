#include "reports/compare/doubt.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "reports/compare/run_notes.h"
#include "reports/statistics/robust.h"

namespace nearmetal {
namespace {

// The side without one of its runs.
CountedRuns without(CountedRuns side, size_t at) {
  side.runs.erase(side.runs.begin() + static_cast<std::ptrdiff_t>(at));
  side.values.erase(side.values.begin() + static_cast<std::ptrdiff_t>(at));
  return side;
}

// The reason for doubt where the verdict would be another without one run that lies far from the
// others.
std::optional<std::string> depends_on_a_run(const ComparisonRow& row, const CountedRuns& base,
                                            const CountedRuns& next, const Metric& metric,
                                            const CompareOptions& options) {
  constexpr size_t fewest = 5;
  if (std::min(base.runs.size(), next.runs.size()) < fewest) return std::nullopt;
  const bool pairs = row.method == Method::paired;
  for (const CountedRuns* side : {&base, &next}) {
    const std::vector<bool> far = outliers(side->values);
    for (size_t i = 0; i < far.size(); ++i) {
      if (!far[i]) continue;
      const CountedRuns left = pairs || side == &base ? without(base, i) : base;
      const CountedRuns right = pairs || side == &next ? without(next, i) : next;
      const auto found = run_difference(left, right, {}, options.base_can_grow);
      if (!found) continue;
      const Verdict other = verdict_of(goodness(found->estimate, metric), options.rule);
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
std::optional<std::string> depends_on_the_trend(const ComparisonRow& row, const CountedRuns& base,
                                                const CountedRuns& next, const Metric& metric,
                                                const DecisionRule& rule) {
  Verdict as_one = row.verdict, anew = row.verdict;
  const auto verdict_by = [&](const LogEstimate& estimate) {
    return verdict_of(goodness(estimate, metric), rule);
  };
  if (row.method == Method::trend && one_after_other(base.runs, next.runs)) {
    anew = verdict_by(difference(*log_mean(base.values), *log_mean(next.values)));
  } else if (row.method == Method::paired && one_side_is_first(base.runs, next.runs)) {
    if (const auto found = difference_beside_trend(base, next))
      as_one = verdict_by(found->estimate);
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

std::optional<std::string> doubt_of(const ComparisonRow& row, const CountedRuns& base,
                                    const CountedRuns& next, const Metric& metric,
                                    const CompareOptions& options) {
  if (row.method == Method::sessions) return std::nullopt;
  auto doubt = depends_on_a_run(row, base, next, metric, options);
  if (!doubt) doubt = is_contradicted(row);
  if (!doubt) doubt = depends_on_the_trend(row, base, next, metric, options.rule);
  if (!doubt) doubt = depends_on_time(row, base, next);
  return doubt;
}

}  // namespace nearmetal
