#include "reports/compare/run_notes.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "reports/compare/run_set.h"
#include "reports/document/metric.h"
#include "reports/document/warning.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// Runs whose mean is hardly better known than they differ are too short.
constexpr double large_within = 1.0 / 3;
// Of sessions: below, intervals are wide.
constexpr double fewest_degrees = 2.5;
constexpr int64_t fewest_pairs_for_rank_test = 6;

const std::string& start(const SetRun* run) { return run->run.started_at; }

void add_order_note(ComparisonRow& row, const SomeRuns& base, const SomeRuns& next) {
  if (base.empty() || next.empty()) return;
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
  if (are_pairs(base, next)) return;
  if (!one_after_other(base, next)) return;
  row.notes.push_back({one_session ? "not_interleaved" : "sessions_apart",
                       "the sides were not interleaved in time: a drift of heat or clocks between "
                       "them would look like a difference"});
}

void add_kind_note(ComparisonRow& row, const SomeRuns& base, const SomeRuns& next) {
  if (base.empty() || next.empty()) return;
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

std::string figure(double value, const Metric& metric) {
  return significant(metric.shown_per_unit * value, 3);
}

// A side in two groups is not described by its mean. The first question is to which of them the
// runs of the other side belong.
void add_groups(ComparisonRow& row, const SideSummary& side, const std::vector<double>& values,
                const SideSummary& other, const std::vector<double>& other_values) {
  const auto found = two_groups(values);
  if (!found) return;
  const Metric& metric = metric_from(row.metric);
  const double middle = std::sqrt(found->of_lower * found->of_upper);
  const auto lower = std::ranges::count_if(other_values, [&](double v) { return v < middle; });
  const std::string where = lower == std::ssize(other_values) ? " all lie in the lower one"
                            : lower == 0                      ? " all lie in the upper one"
                                                              : "";
  row.notes.push_back({"two_groups", "the runs of " + side.name + " fall into two groups, about " +
                                         figure(found->of_lower, metric) + " and " +
                                         figure(found->of_upper, metric) + " (" +
                                         std::to_string(found->lower) + " and " +
                                         std::to_string(values.size() - found->lower) + " runs)" +
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
  if (base.empty() || is_imported(*base.front())) return;  // nothing of it is told
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
  add_groups(row, row.base_side, base.values, row.new_side, next.values);
  add_groups(row, row.new_side, next.values, row.base_side, base.values);
  add_different_software(row, base.runs, next.runs);
  add_short_runs(row, row.base_side);
  add_short_runs(row, row.new_side);
}

}  // namespace nearmetal
