#include "reports/compare/comparison_row.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

struct SideValues : CountedRuns {
  std::vector<double> within;  // relative standard error of each run, where known
  std::vector<LeftOut> left_out;
  std::string lack;  // why a complete run has no such value; empty where each has one
};

// The values that a training step can take or yield; beyond lies damage, or a joke.
constexpr double smallest_value = 1e-100;
constexpr double largest_value = 1e100;

// The rule does not depend on the figure itself, except where that is no number.
std::string why_left_out(const Run& run, const Maybe<double>& value) {
  if (run.status != Status::complete) {
    return std::string(to_string(run.status)) + " (" + run.failure.value_or("no reason given") +
           ")";
  }
  if (!value) return value.reason;
  return *value >= smallest_value && *value <= largest_value ? "" : "the value makes no sense";
}

double within_error(const Run& run) {
  double largest = 0;
  for (const Rank& rank : run.ranks) {
    if (!rank.step_time) continue;
    largest = std::max(largest, rank.step_time->relative_standard_error.value.value_or(0));
  }
  return std::min(1.0, largest);  // more is as good as unknown
}

SideValues values_of(const RunArm& arm, const Metric& metric) {
  SideValues side;
  for (const SetRun* run : in_order(runs_of(arm))) {
    const Maybe<double> value = metric.value_of(run->run);
    if (run->run.status == Status::complete && !value) side.lack = value.reason;
    const std::string why_not = why_left_out(run->run, value);
    if (!why_not.empty()) {
      const bool lacks_figure = run->run.status == Status::complete;
      side.left_out.push_back({run->source, lacks_figure ? metric.name : "", why_not});
      continue;
    }
    side.runs.push_back(run);
    side.values.push_back(*value);
    // That of the mean step, which says nothing of quantiles or set-up.
    const double error = metric.is_throughput ? within_error(run->run) : 0;
    if (error > 0) side.within.push_back(error);
  }
  return side;
}

SideSummary summary_of(const SideValues& side) {
  SideSummary summary;
  summary.runs = std::ssize(side.values);
  summary.left_out = std::ssize(side.left_out);
  for (const SetRun* run : side.runs) {
    if (summary.disturbed.empty()) summary.disturbed = disturbance_of(*run);
    summary.shared += was_shared(*run) ? 1 : 0;
    summary.emulated = summary.emulated || run->kind == Kind::emulated;
  }
  summary.values = side.values;
  summary.run_seconds = mean_run_seconds(side.runs);
  if (side.values.empty()) return summary;
  const Sessions sessions = sessions_of(side);
  summary.sessions = std::ssize(sessions);
  // The mean of a session is the unit where there are several.
  const std::vector<double> units =
      sessions.size() > 1
          ? transformed(session_means(sessions), [](double log) { return std::exp(log); })
          : side.values;
  summary.geometric_mean = geometric_mean(units);
  if (const auto estimate = log_mean(units)) {
    summary.interval = interval(*estimate, side_confidence);
  }
  if (const auto spread = run_spread(side.values, side.within)) summary.spread = *spread;
  return summary;
}

const char* reason_of(Verdict verdict) {
  if (verdict == Verdict::slower) return "worse by more than the margin";
  if (verdict == Verdict::faster) return "better by more than the margin";
  if (verdict == Verdict::equivalent) return "within the margin";
  return "the interval of the difference reaches over a margin";
}

void fill_tests(ComparisonRow& row, const LogEstimate& estimate, const Metric& metric,
                const DecisionRule& rule) {
  const double margin = -log_margin(rule);
  const LogEstimate better = goodness(estimate, metric);
  const Interval factors = interval(estimate, 1 - 2 * rule.alpha);
  row.log_difference = estimate;
  row.difference = std::expm1(estimate.value);
  row.difference_interval = Interval{factors.lower - 1, factors.upper - 1};
  row.p = p_of_no_difference(estimate);
  row.p_worse = p_of_at_most(better, -margin);
  row.p_better = p_of_at_least(better, margin);
  row.p_regression = p_of_at_least(better, -margin);
  row.verdict = verdict_of(estimate, metric, rule);
  row.reason = reason_of(row.verdict);
}

// Whether a true difference at the margin is about as likely as the measured one: the number of
// runs that decides goes to infinity there, so that none can be promised.
bool lies_at_margin(const LogEstimate& estimate, const DecisionRule& rule) {
  constexpr double errors = 0.5;
  const double distance = std::abs(std::abs(estimate.value) + log_margin(rule));
  return distance < errors * estimate.standard_error;
}

// More runs, or more sessions of as many runs, that would decide.
void plan_more(ComparisonRow& row, const RunDifference& found, const ComparedSides& sides) {
  const CompareOptions& options = sides.options;
  const DecisionRule& rule = options.rule;
  if (row.verdict != Verdict::inconclusive) {
    row.more_runs = row.more_sessions = Unknown{"decided"};
    return;
  }
  if (lies_at_margin(found.estimate, rule)) {
    row.more_runs = row.more_sessions =
        Unknown{"its distance from the margin is noise: no number of runs can be promised"};
    return;
  }
  const double truth = goodness(found.estimate, sides.metric).value;
  const std::string would_not_decide =
      options.base_can_grow
          ? " a side would not decide: make runs longer (--duration), or accept a wider --margin"
          : " of the new side would not decide, as the noise of the base stays: add to the base";
  row.more_sessions = Unknown{"all runs are of one session"};
  if (found.of_sessions) {
    row.more_runs = Unknown{"more runs of these sessions would not decide; more sessions may"};
    row.more_sessions = Unknown{"even 1000 more sessions" + would_not_decide};
    const auto more = more_sessions_to_decide(*found.of_sessions, truth, options.base_can_grow,
                                              rule, planned_power);
    if (more) row.more_sessions = std::max<int64_t>(1, *more);
    return;
  }
  if (found.method == Method::trend) {
    row.more_runs = Unknown{"the runs follow a trend: take the sides by turns"};
    return;
  }
  row.more_runs = Unknown{"even 1000 more runs" + would_not_decide};
  const auto more = more_runs_to_decide(found.groups, truth, rule, planned_power);
  if (more) row.more_runs = std::max<int64_t>(1, *more);
}

// Ranks of runs that share a session are not independent.
Maybe<double> rank_test(Method method, const ComparedSides& sides) {
  if (method == Method::sessions) return Unknown{"runs of one session are not independent"};
  if (method == Method::trend) return Unknown{"the runs follow a trend"};
  if (method == Method::welch) {
    return mann_whitney_p(sides.next.values, sides.base.values);
  }
  return wilcoxon_p(sides.log_ratios());
}

// The median takes independent runs, or pairs of them.
void fill_median(ComparisonRow& row, const ComparedSides& sides) {
  const Unknown dependent{"the runs are not independent"};
  row.median_difference = dependent;
  row.median_interval = dependent;
  if (row.method == Method::sessions || row.method == Method::trend) return;
  const double confidence = 1 - 2 * sides.options.rule.alpha;
  const Shift found = row.method == Method::paired
                          ? shift_of_pairs(sides.log_ratios(), confidence)
                          : shift_of(sides.base.values, sides.next.values, confidence);
  row.median_difference = std::expm1(found.value);
  row.median_interval = Unknown{found.interval.reason};
  if (found.interval) {
    row.median_interval =
        Interval{std::expm1(found.interval->lower), std::expm1(found.interval->upper)};
  }
}

void fill_figures(ComparisonRow& row, const RunDifference& found, const ComparedSides& sides) {
  const DecisionRule& rule = sides.options.rule;
  row.method = found.method;
  if (found.of_sessions) {
    row.base_sessions = sessions_of(sides.base);
    row.new_sessions = sessions_of(sides.next);
  }
  fill_tests(row, found.estimate, sides.metric, rule);
  row.rank_test_p = rank_test(found.method, sides);
  fill_median(row, sides);
  row.detectable_drop = detectable_drop(found.estimate, rule, planned_power);
  if (found.method == Method::trend) {
    row.notes.push_back({"trend", "the runs of both sides change by " +
                                      signed_percent(std::expm1(found.trend)) +
                                      " from one to the next, which the difference leaves out"});
  }
  plan_more(row, found, sides);
  row.doubt = doubt_of(row, sides);
  if (!row.doubt) return;
  row.verdict = Verdict::inconclusive;  // bad runs and trends leave none
  row.reason = *row.doubt;
  row.more_runs = row.more_sessions = Unknown{*row.doubt};
}

void mark_unmeasured(ComparisonRow& row, const Unknown& why) {
  row.log_difference = why;
  row.difference_interval = row.median_interval = why;
  row.difference = row.median_difference = row.p = row.rank_test_p = row.p_worse = row.p_better =
      row.p_regression = row.detectable_drop = why;
  row.more_runs = row.more_sessions = why;
}

// Judges a machine among those of a reference by the error that one more of them has.
void fill_place_among_machines(ComparisonRow& row, const ComparedSides& sides) {
  constexpr size_t day_digits = 10;  // of 2026-01-31T...
  std::map<std::string, Sessions> machines;
  std::set<std::string> days;
  for (size_t i = 0; i < sides.base.runs.size(); ++i) {
    const SetRun& run = *sides.base.runs[i];
    machines[run.machine][run.session].push_back(std::log(sides.base.values[i]));
    days.insert(run.run.started_at.substr(0, day_digits));
  }
  std::vector<Sessions> of_machines;
  std::vector<double> means;
  for (const auto& [name, sessions] : machines) {
    of_machines.push_back(sessions);
    means.push_back(mean_of(sessions));
  }
  row.base_side.machines = std::ssize(machines);
  row.base_side.days = std::ssize(days);
  row.base_side.geometric_mean = geometric_mean(means);
  if (const auto of_mean = log_mean(means)) {
    row.base_side.interval = interval(*of_mean, side_confidence);
  }
  const auto found = difference_from_machines(of_machines, sessions_of(sides.next));
  if (!found) {
    const std::string why = counted(row.base_side.machines, "machine") +
                            " of the reference, which do not tell how machines differ: it takes " +
                            std::to_string(fewest_machines) + " that do";
    mark_unmeasured(row, {why});
    row.difference = *row.new_side.geometric_mean / *row.base_side.geometric_mean - 1;
    row.verdict = Verdict::inconclusive;
    row.reason = why;
    return;
  }
  const DecisionRule rule{.margin = 0, .alpha = sides.options.rule.alpha};
  const Unknown by_means{"machines are compared by their means"};
  row.method = Method::machines;
  row.rank_test_p = row.median_difference = by_means;
  row.median_interval = by_means;
  fill_tests(row, *found, sides.metric, rule);
  row.detectable_drop = detectable_drop(*found, rule, planned_power);
  row.more_runs = row.more_sessions = Unknown{"the reference tells how machines differ"};
  const std::string share = plain_percent(1 - rule.alpha) + " of the machines of the reference";
  if (row.verdict == Verdict::inconclusive) {
    row.verdict = Verdict::within;
    row.reason = "within what the machines of the reference show";
  } else {
    row.reason = (row.verdict == Verdict::slower ? "worse than " : "better than ") + share;
  }
}

// Fills the row of a side without a value: its runs lack the metric, or none is complete.
void fill_missing(ComparisonRow& row, const SideValues& side, const std::string& name) {
  if (!side.values.empty()) return;
  row.verdict = side.lack.empty() ? Verdict::invalid : Verdict::not_comparable;
  row.reason = side.lack.empty() ? "no complete run of " + name
                                 : "no run of " + name + " has " + row.metric + ": " + side.lack;
}

// The mean over the rows in each session that all of them have, as a session does one thing to the
// runs of all rows. Empty where there is no such session.
Sessions mean_of_rows(const std::vector<const ComparisonRow*>& rows,
                      Sessions ComparisonRow::*side) {
  Sessions means;
  for (const auto& [name, unused] : rows.front()->*side) {
    std::vector<double> of_rows;
    for (const ComparisonRow* row : rows) {
      const auto found = (row->*side).find(name);
      if (found != (row->*side).end()) of_rows.push_back(mean(found->second));
    }
    if (of_rows.size() == rows.size()) means[name] = {mean(of_rows)};
  }
  return means;
}

// The difference of figures without noise; none of fewer than 2 runs a side, or that differ on one.
std::optional<RunDifference> exact_difference(const CountedRuns& base, const CountedRuns& next) {
  constexpr double error = 1e-9;  // no interval is empty
  for (const CountedRuns* side : {&base, &next}) {
    const auto [least, most] = std::ranges::minmax(side->values);
    if (side->values.size() < 2 || least != most) return std::nullopt;
  }
  const auto degrees = static_cast<double>(base.values.size() + next.values.size() - 2);
  const double ratio = geometric_mean(next.values) / geometric_mean(base.values);
  return RunDifference{Method::welch, {std::log(ratio), error, degrees}, {}};
}

// Without a spread there is a difference, but nothing to judge it by.
void fill_difference_alone(ComparisonRow& row, bool paired) {
  const bool few = std::min(row.base_side.runs, row.new_side.runs) < 2;
  const std::string equal =
      paired ? "all pairs differ by the same" : "all runs of a side are equal";
  mark_unmeasured(row, {few ? "fewer than 2 runs on a side" : equal});
  row.difference = *row.new_side.geometric_mean / *row.base_side.geometric_mean - 1;
  row.verdict = Verdict::inconclusive;
  row.reason = few ? "an interval needs 2 runs a side, a firm verdict more"
                   : equal + ": the spread is below what was resolved";
}

}  // namespace

std::vector<const Metric*> cost_metrics(const RunArm& arm) {
  if (arm.runs.empty()) return {};
  return transformed(arm.runs[0].run.costs,
                     [](const auto& cost) { return &metric_from(to_string(cost.first)); });
}

bool has_throughput(const SetRun& run) {
  return run.run.status == Status::complete && run.run.throughput.value.value_or(0) > 0;
}

Sessions throughput_sessions(const RunArm& arm) {
  Sessions sessions;
  for (const SetRun& run : arm.runs) {
    if (has_throughput(run)) sessions[run.session].push_back(std::log(*run.run.throughput));
  }
  return sessions;
}

Estimate estimate_around(double value, std::span<const SessionTerm> terms, double confidence) {
  const bool several =
      std::ranges::any_of(terms, [](const SessionTerm& term) { return term.runs.size() > 1; });
  std::optional<LogEstimate> estimate;
  if (several) {
    estimate = sum_over_sessions(terms);
    if (!estimate) return {value, Unknown{"its runs do not tell how their sessions differ"}};
  } else {
    std::vector<std::pair<double, LogEstimate>> parts;
    for (const SessionTerm& term : terms) {
      const auto part = mean_of_logs(term.runs.begin()->second);
      if (!part) return {value, Unknown{"fewer than 2 runs"}};
      parts.emplace_back(term.weight, *part);
    }
    estimate = combined(parts);
  }
  estimate->value = std::log(value);
  return {value, interval(*estimate, confidence)};
}

Estimate mean_estimate(const Sessions& runs, double confidence) {
  const SessionTerm terms[] = {{1, runs}};
  return estimate_around(mean_of(runs), terms, confidence);
}

Estimate ratio_estimate(const Sessions& runs, const Sessions& base, double confidence) {
  const SessionTerm terms[] = {{1, runs}, {-1, base}};
  return estimate_around(mean_of(runs) / mean_of(base), terms, confidence);
}

double mean_of(const Sessions& sessions) { return std::exp(mean(session_means(sessions))); }

Maybe<double> mean_run_seconds(std::span<const SetRun* const> runs) {
  if (runs.empty()) return Unknown{"no complete run"};
  double sum = 0;
  for (const SetRun* run : runs) {
    Maybe<double> seconds = run_seconds(run->run);
    if (!seconds) return seconds;
    sum += *seconds;
  }
  return sum / static_cast<double>(runs.size());
}

SideSummary summary_of_arm(const RunArm& arm, const Metric& metric) {
  return summary_of(values_of(arm, metric));
}

std::vector<LeftOut> left_out_of(const RunArm& arm, const Metric& metric) {
  return values_of(arm, metric).left_out;
}

ComparisonRow row_without_figures(const std::string& arm, const Metric& metric, Verdict verdict,
                                  const std::string& reason) {
  ComparisonRow row;
  row.arm = arm;
  row.metric = metric.name;
  row.verdict = verdict;
  row.reason = reason;
  mark_unmeasured(row, {reason});
  for (SideSummary* side : {&row.base_side, &row.new_side}) {
    side->geometric_mean = side->run_seconds = Unknown{reason};
    side->interval = Unknown{reason};
    side->spread = Unknown{reason};
  }
  return row;
}

ComparisonRow compare_arms(const RunArm& base_arm, const RunArm& new_arm, const Metric& metric,
                           const CompareOptions& options, const RunArm& others) {
  const SideValues base = values_of(base_arm, metric);
  const SideValues next = values_of(new_arm, metric);
  ComparisonRow row = row_without_figures(base_arm.name, metric, Verdict::invalid, "");
  row.base_side = summary_of(base);
  row.new_side = summary_of(next);
  row.base_side.name = words_of(options).base_name;
  row.new_side.name = words_of(options).new_name;
  for (const SideValues* side : {&base, &next}) {
    for (const std::string& text : left_out_texts(side->left_out)) {
      row.notes.push_back({"left_out", text});
    }
  }
  if (base.values.empty() || next.values.empty()) {
    fill_missing(row, next, row.new_side.name);
    fill_missing(row, base, row.base_side.name);
    mark_unmeasured(row, {row.reason});
    return row;
  }
  const ComparedSides sides{base, next, metric, options};
  if (options.form == ComparisonForm::reference) {
    fill_place_among_machines(row, sides);
    return row;
  }
  auto found = run_difference(sides, values_of(others, metric));
  if (!found && metric.is_exact) found = exact_difference(base, next);
  if (found) {
    fill_figures(row, *found, sides);
  } else {
    fill_difference_alone(row, are_pairs(base.runs, next.runs));
  }
  add_run_notes(row, base, next);
  return row;
}

ComparisonRow geometric_mean_row(const std::vector<const ComparisonRow*>& rows,
                                 const Metric& metric, const DecisionRule& rule) {
  const double weight = 1 / static_cast<double>(rows.size());
  std::vector<std::pair<double, LogEstimate>> terms;
  for (const ComparisonRow* row : rows) terms.emplace_back(weight, *row->log_difference);
  const auto by_sessions = session_difference(mean_of_rows(rows, &ComparisonRow::base_sessions),
                                              mean_of_rows(rows, &ComparisonRow::new_sessions));
  ComparisonRow mean_row = row_without_figures("geometric mean", metric, Verdict::inconclusive,
                                               "not determined for a mean of rows");
  mean_row.method = Method::mean_of_rows;
  fill_tests(mean_row, by_sessions ? by_sessions->estimate : combined(terms), metric, rule);
  const bool in_doubt =
      std::ranges::any_of(rows, [](const ComparisonRow* row) { return row->doubt.has_value(); });
  if (in_doubt) {
    mean_row.doubt = mean_row.reason = "the verdict of a row is in doubt";
    mean_row.verdict = Verdict::inconclusive;
  }
  return mean_row;
}

bool has_few_runs(const SideSummary& side) {
  return side.interval && std::ssize(side.values) < fewest_for_rank_test;
}

std::string mean_text(const SideSummary& side, const Metric& metric) {
  if (!side.geometric_mean) return "-";
  const double scale = metric.shown_per_unit;
  if (has_few_runs(side)) {
    const auto [least, most] = std::ranges::minmax(side.values);
    return significant(scale * median(side.values)) + " (" + significant(scale * least) + " to " +
           significant(scale * most) + ")";
  }
  if (!side.interval) return significant(scale * *side.geometric_mean);
  return with_interval(scale * *side.geometric_mean,
                       {scale * side.interval->lower, scale * side.interval->upper});
}

}  // namespace nearmetal
