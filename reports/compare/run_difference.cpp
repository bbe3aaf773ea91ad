#include "reports/compare/run_difference.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "reports/document/metric.h"
#include "reports/document/warning.h"
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

// The reason for doubt where the verdict would be another without one run far from the others.
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

// Runs whose mean is hardly better known than they differ are too short.
constexpr double large_within = 1.0 / 3;
// Of sessions: below, intervals are wide.
constexpr double fewest_degrees = 2.5;
constexpr int64_t fewest_pairs_for_rank_test = 6;

const std::string& start(const SetRun* run) { return run->run.started_at; }

void add_order_note(ComparisonRow& row, const SomeRuns& base, const SomeRuns& next) {
  if (is_imported(*base.front())) return;  // when they were taken is seldom told
  const bool by_sessions = row.method == Method::sessions;
  const double degrees = by_sessions ? row.log_difference->degrees_of_freedom : 0;
  if (degrees >= fewest_degrees) return;
  const bool one_session = base.front()->session == next.front()->session;
  if (by_sessions || !one_session) {
    row.notes.push_back(
        {"few_sessions",
         "the runs are of " + counted(row.base_side.sessions, "session") +
             " (system since its start, day) of " + row.base_side.name + " and " +
             std::to_string(row.new_side.sessions) + " of " + row.new_side.name +
             (by_sessions ? ": they tell little of how sessions differ, so that the interval is "
                            "wide; more sessions narrow it"
                          : ": too few to know how sessions differ, so that the interval holds "
                            "within one; with 2 of a side it takes that in")});
    if (by_sessions) return;
  }
  if (are_pairs(base, next) || !one_after_other(base, next)) return;
  row.notes.push_back({one_session ? "not_interleaved" : "sessions_apart",
                       "the sides were not interleaved in time: a drift of heat or clocks between "
                       "them would look like a difference"});
}

void add_kind_note(ComparisonRow& row, const SomeRuns& base, const SomeRuns& next) {
  if (is_imported(*base.front())) {
    std::set<std::string> derivations;
    for (const SetRun* run : base) derivations.insert(run->derived);
    for (const SetRun* run : next) derivations.insert(run->derived);
    row.notes.push_back({"imported", joined({derivations.begin(), derivations.end()}, "; ")});
    return;
  }
  const std::string kind = to_string(base.front()->kind), other = to_string(next.front()->kind);
  if (kind != other) {
    row.notes.push_back({"kinds_differ", row.base_side.name + " is " + kind + ", " +
                                             row.new_side.name + " " + other +
                                             ": the difference is what the emulated split costs, "
                                             "and says nothing about a hypervisor"});
    return;
  }
  if (kind == to_string(Kind::measured)) return;
  row.notes.push_back({kind, "both sides are " + kind + ", and say nothing about real machines"});
}

// Runs of both sides, as when new runs were added to the baseline that they are compared with.
void add_shared_runs(ComparisonRow& row, const SomeRuns& base, const SomeRuns& next) {
  const auto identity = [](const SetRun* run) {
    return std::pair(beginning_of(*run), run->run.throughput.value);
  };
  std::set<decltype(identity(base.front()))> of_base;
  for (const SetRun* run : base) of_base.insert(identity(run));
  const auto shared = std::ranges::count_if(
      next, [&](const SetRun* run) { return of_base.count(identity(run)) > 0; });
  if (shared == 0) return;
  row.notes.push_back(
      {"shared_runs", std::to_string(shared) + " of " + counted(std::ssize(next), "run") + " of " +
                          row.new_side.name + (shared == 1 ? " is" : " are") + " in " +
                          row.base_side.name + ", too: that hides a difference"});
}

void add_outliers(ComparisonRow& row, const CountedRuns& side) {
  const std::vector<bool> outlying = outliers(side.values);
  for (size_t i = 0; i < outlying.size(); ++i) {
    if (!outlying[i]) continue;
    row.notes.push_back({"outlier", "the run of " + side.runs[i]->source + " started at " +
                                        side.runs[i]->run.started_at +
                                        " lies far from the others of its side; it counts"});
  }
}

// A side in two groups is not described by its mean. The first question is to which of them the
// runs of the other side belong.
void add_groups(ComparisonRow& row, const SideSummary& side, const SideSummary& other) {
  const auto found = two_groups(side.values);
  if (!found) return;
  const auto figure = [scale = metric_from(row.metric).shown_per_unit](double value) {
    return significant(scale * value, 3);
  };
  const double middle = std::sqrt(found->of_lower * found->of_upper);
  const auto lower = std::ranges::count_if(other.values, [&](double v) { return v < middle; });
  const std::string where = lower == std::ssize(other.values) ? " all lie in the lower one"
                            : lower == 0                      ? " all lie in the upper one"
                                                              : "";
  row.notes.push_back(
      {"two_groups", "the runs of " + side.name + " fall into two groups, about " +
                         figure(found->of_lower) + " and " + figure(found->of_upper) + " (" +
                         std::to_string(found->lower) + " and " +
                         std::to_string(side.values.size() - found->lower) + " runs)" +
                         (where.empty() ? "" : "; those of " + other.name + where) +
                         ": look for what the groups differ in"});
}

struct WarningOfRun {
  size_t run = 0;
  const Warning* warning = nullptr;
};

bool is_milder(const WarningOfRun& a, const WarningOfRun& b) {
  if (!a.warning->figure || !b.warning->figure) return b.warning->figure.has_value();
  return is_worse(*b.warning->figure, *a.warning->figure);
}

// The least and the largest, where all have one in the same unit.
std::optional<std::pair<Figure, Figure>> range_of(const std::vector<WarningOfRun>& all) {
  const std::optional<Figure>& first = all.front().warning->figure;
  const bool alike = first && std::ranges::all_of(all, [&](const WarningOfRun& one) {
                       return one.warning->figure && one.warning->figure->unit == first->unit;
                     });
  if (!alike) return std::nullopt;
  const auto [least, most] = std::ranges::minmax_element(
      all, {}, [](const WarningOfRun& one) { return one.warning->figure->value; });
  return std::pair(*least->warning->figure, *most->warning->figure);
}

RunWarning folded(const std::vector<WarningOfRun>& all) {
  const auto worst = std::ranges::max_element(all, is_milder);
  RunWarning found{.warning = *worst->warning};
  for (const WarningOfRun& one : all) {
    add_new(found.runs, one.run);
    found.same = found.same && one.warning->text == found.warning.text;
  }
  if (found.same) return found;
  found.range = range_of(all);
  if (found.warning.figure) found.worst = worst->run;
  return found;
}

std::set<std::string> plans_of(const SomeRuns& runs) {
  std::set<std::string> hashes;
  for (const SetRun* run : runs) {
    for (const Rank& rank : run->run.ranks) {
      if (rank.kernel_choices_sha256) hashes.insert(*rank.kernel_choices_sha256);
    }
  }
  return hashes;
}

void add_different_software(ComparisonRow& row, const SomeRuns& base, const SomeRuns& next) {
  if (is_imported(*base.front())) return;  // nothing of it is told
  if (plans_of(base) != plans_of(next)) {
    row.notes.push_back({"different_plans",
                         "the sides ran different kernels; `run --plans REPORT` pins those of "
                         "another run"});
  }
  const std::vector<Tool> of_base = builds_of(base), of_next = builds_of(next);
  if (!std::ranges::is_permutation(of_base, of_next)) {
    row.notes.push_back(
        {"different_tool", "the sides were measured by different builds of nearmetal: " +
                               builds_text(of_base, of_next) + " | " +
                               builds_text(of_next, of_base)});
  } else if (of_base.size() > 1) {
    row.notes.push_back({"mixed_tools", "each side has runs of several builds of nearmetal: " +
                                            builds_text(of_base)});
  }
}

void add_short_runs(ComparisonRow& row, const SideSummary& side) {
  if (!side.spread || side.spread->within <= large_within * side.spread->between) return;
  if (side.spread->within < large_within * side.spread->deviation) return;
  row.notes.push_back({"short_runs", "noise within the runs of " + side.name +
                                         " is a large part of their spread: longer runs would "
                                         "narrow the interval"});
}

void add_rank_test_note(ComparisonRow& row) {
  if (!row.rank_test_p) return;
  const bool pairs = row.method == Method::paired;
  const int64_t fewest = pairs ? fewest_pairs_for_rank_test : fewest_for_rank_test;
  if (std::min(row.base_side.runs, row.new_side.runs) >= fewest) return;
  row.notes.push_back({"few_runs", "with fewer than " + std::to_string(fewest) +
                                       (pairs ? " pairs" : " runs a side") +
                                       " the rank test cannot fall below 0.05"});
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

bool one_after_other(const SomeRuns& base, const SomeRuns& next) {
  return start(base.back()) <= start(next.front()) || start(next.back()) <= start(base.front());
}

bool one_side_is_first(const SomeRuns& base, const SomeRuns& next) {
  size_t of_base = 0;
  for (size_t i = 0; i < base.size(); ++i) of_base += start(base[i]) < start(next[i]) ? 1 : 0;
  return of_base == 0 || of_base == base.size();
}

bool are_pairs(const SomeRuns& base, const SomeRuns& next) {
  bool pairs = base.size() == next.size() && base.size() > 1;
  for (size_t i = 1; pairs && i < base.size(); ++i) {
    const std::string& before = std::max(start(base[i - 1]), start(next[i - 1]));
    pairs = before < std::min(start(base[i]), start(next[i]));
  }
  return pairs;
}

std::vector<std::string> left_out_texts(const std::vector<LeftOut>& runs) {
  using Reason = std::pair<std::string, std::string>;                // the metric, and why
  std::vector<std::pair<Reason, std::vector<std::string>>> reasons;  // with the sources
  for (const LeftOut& run : runs) {
    value_beside({run.metric, run.why}, reasons).push_back(run.source);
  }
  std::vector<std::string> texts;
  for (auto& [reason, sources] : reasons) {
    const auto& [metric, why] = reason;
    const size_t count = sources.size();
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
    texts.push_back((count == 1 ? "a run" : std::to_string(count) + " runs") + " of " +
                    shortened(joined(sources)) + (count == 1 ? " is" : " are") + " left out" +
                    (metric.empty() ? "" : " of " + metric) + ": " + why);
  }
  return texts;
}

std::vector<RunWarning> warnings_of(const SomeRuns& runs) {
  std::vector<std::pair<std::string, std::vector<WarningOfRun>>> by_code;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const Warning& warning : runs[i]->run.warnings) {
      value_beside(warning.code, by_code).push_back({i, &warning});
    }
  }
  return transformed(by_code, [](const auto& of_code) { return folded(of_code.second); });
}

std::string extent_text(const RunWarning& found, const std::string& runs) {
  if (found.same) return runs;
  if (!found.range) return runs + ", quoting the " + (found.worst ? "worst" : "first");
  return runs + ", " + figures_text(found.range->first, found.range->second);
}

std::string disturbance_of(const SetRun& run) {
  const std::string name = "a run of " + run.source;
  if (run.run.ranks.empty()) return name + " has no ranks";
  for (const Rank& rank : run.run.ranks) {
    if (!rank.monitoring) return name + " was not monitored";
    const Monitoring& found = *rank.monitoring;
    if (found.verdict != MonitorVerdict::clean) {
      const bool unknown = found.verdict == MonitorVerdict::unknown;
      return name + " was " + (unknown ? "not shown to be clean" : to_string(found.verdict)) +
             ": " + joined(texts_of(found.reasons), "; ");
    }
    const auto unseen = found.not_monitored.find("sm_clock_hertz");
    if (run.run.device == Device::cuda && unseen != found.not_monitored.end()) {
      return name + " reports no clock of its GPU: " + unseen->second;
    }
  }
  return "";
}

bool was_shared(const SetRun& run) {
  return std::ranges::any_of(run.run.ranks, [](const Rank& rank) {
    return rank.monitoring && rank.monitoring->verdict == MonitorVerdict::shared;
  });
}

void add_run_notes(ComparisonRow& row, const CountedRuns& base, const CountedRuns& next) {
  add_kind_note(row, base.runs, next.runs);
  add_order_note(row, base.runs, next.runs);
  add_shared_runs(row, base.runs, next.runs);
  add_rank_test_note(row);
  row.base_side.warnings = warnings_of(base.runs);
  row.new_side.warnings = warnings_of(next.runs);
  add_outliers(row, base);
  add_outliers(row, next);
  add_groups(row, row.base_side, row.new_side);
  add_groups(row, row.new_side, row.base_side);
  add_different_software(row, base.runs, next.runs);
  add_short_runs(row, row.base_side);
  add_short_runs(row, row.new_side);
}

}  // namespace nearmetal
