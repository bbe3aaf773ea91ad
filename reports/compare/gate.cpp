#include "reports/compare/gate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace nearmetal {
namespace {

using Rows = std::vector<const ComparisonRow*>;

std::string names_of(const Rows& rows, const Comparison& comparison) {
  constexpr size_t most_names = 3;
  const bool one_metric = comparison.options.metrics.size() == 1;
  return joined_first(most_names, transformed(rows, [&](const ComparisonRow* row) {
                        return title_of(*row) + (one_metric ? "" : " " + row->metric);
                      }));
}

// "a, b: why; c: another reason; 4 more rows": each reason with its rows, in the order of the rows.
template <class Reason>
std::string with_reasons(Rows rows, const Comparison& comparison, const Reason& reason_of) {
  constexpr size_t most_reasons = 3;
  std::vector<std::string> texts;
  while (!rows.empty() && texts.size() < most_reasons) {
    const std::string reason = reason_of(*rows.front());
    const auto others =
        std::stable_partition(rows.begin(), rows.end(),
                              [&](const ComparisonRow* row) { return reason_of(*row) == reason; });
    texts.push_back(names_of(Rows(rows.begin(), others), comparison) + ": " + reason);
    rows.erase(rows.begin(), others);
  }
  if (!rows.empty()) texts.push_back(counted(std::ssize(rows), "more row"));
  return joined(texts, "; ");
}

template <class Predicate>
Rows rows_where(const Comparison& comparison, const Predicate& holds) {
  Rows rows;
  for (const ComparisonRow& row : comparison.rows) {
    if (holds(row)) rows.push_back(&row);
  }
  return rows;
}

Rows rows_of(const Comparison& comparison, Verdict verdict) {
  return rows_where(comparison, [=](const ComparisonRow& row) { return row.verdict == verdict; });
}

// Holm's, of what shows this verdict, in the order of the rows that have a p.
std::vector<double> adjusted_p(const Comparison& comparison, Verdict verdict) {
  std::vector<double> p_values;
  for (const ComparisonRow& row : comparison.rows) {
    if (!row.p) continue;
    p_values.push_back(verdict == Verdict::slower ? *row.p_regression : 1 - *row.p_better);
  }
  return holm_adjusted(p_values);
}

int64_t fewest_runs_of(const ComparisonRow* row) {
  return std::min(row->base_side.runs, row->new_side.runs);
}

bool has_few_runs(const ComparisonRow& row, const GateOptions& options) {
  return fewest_runs_of(&row) < options.minimum_runs;
}

std::string runs_text(const ComparisonRow& row) {
  return counted(row.base_side.runs, "base run") + " and " + counted(row.new_side.runs, "new run");
}

const std::string& own_reason(const ComparisonRow& row) { return row.reason; }

// Why the runs of a row are not shown to be taken in peace; empty: they are.
const std::string& unclean(const ComparisonRow& row) {
  return row.base_side.disturbed.empty() ? row.new_side.disturbed : row.base_side.disturbed;
}

bool end(GateResult& result, ExitCode code, const std::string& verdict) {
  result.exit_code = code;
  result.verdict = verdict;
  return true;
}

// Puts into `result` what keeps the rows from being judged at all; false where nothing does.
bool refuse(const Comparison& comparison, GateResult& result) {
  if (comparison.rows.empty())
    return end(result, ExitCode::invalid_report, "invalid: there is no run");
  const auto refused = [&](ExitCode code, const std::string& what, const Rows& rows,
                           const auto& reason_of) {
    return !rows.empty() && end(result, code, what + with_reasons(rows, comparison, reason_of));
  };
  const auto is_unclean = [&](const ComparisonRow& row) {
    return result.options.require_clean && !unclean(row).empty();
  };
  if (refused(ExitCode::invalid_report, "invalid: ", rows_of(comparison, Verdict::invalid),
              own_reason) ||
      refused(ExitCode::not_comparable,
              "not comparable: ", rows_of(comparison, Verdict::not_comparable), own_reason) ||
      refused(ExitCode::not_comparable, "not clean: ", rows_where(comparison, is_unclean),
              unclean)) {
    return true;
  }
  Rows few = rows_where(
      comparison, [&](const ComparisonRow& row) { return has_few_runs(row, result.options); });
  std::ranges::stable_sort(few, {}, fewest_runs_of);
  result.inconclusive = !few.empty();
  const std::string needed = std::to_string(result.options.minimum_runs);
  const auto is_blind = [](const ComparisonRow& row) { return !row.log_difference; };
  return refused(ExitCode::inconclusive,
                 "inconclusive: too few runs (" + needed + " of each are needed): ", few,
                 runs_text) ||
         refused(ExitCode::inconclusive, "inconclusive: ", rows_where(comparison, is_blind),
                 own_reason);
}

bool shows_what_is_asked(const ComparisonRow& row, FailOn fail_on, double alpha) {
  if (row.doubt) return false;
  if (fail_on == FailOn::regression) return true;
  return fail_on == FailOn::any ? row.verdict == Verdict::equivalent : *row.p_worse <= alpha;
}

std::vector<RowAnswer> answers_of(const Comparison& comparison, const GateOptions& options) {
  std::vector<RowAnswer> answers;
  for (const ComparisonRow& row : comparison.rows) {
    const bool can_decide = row.log_difference && !has_few_runs(row, options);
    RowAnswer& answer = answers.emplace_back(RowAnswer::passed);
    const bool fails = row.verdict == Verdict::slower ||
                       (options.fail_on == FailOn::any && row.verdict == Verdict::faster);
    if (can_decide && fails) {
      answer = RowAnswer::failed;
    } else if (!can_decide ||
               !shows_what_is_asked(row, options.fail_on, comparison.options.rule.alpha)) {
      answer = RowAnswer::unshown;
    } else if (row.verdict == Verdict::inconclusive) {
      answer = RowAnswer::tolerated;
    }
  }
  return answers;
}

// Complete runs of the arm that has the fewest.
int64_t fewest_runs(const RunSet& set) {
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (const RunArm& arm : set.arms) {
    fewest = std::min<int64_t>(fewest, std::ssize(complete_runs(arm)));
  }
  return fewest;
}

double share_of_alpha(bool last, int64_t looks) {
  constexpr double share_of_last = 0.9;
  if (looks == 1) return 1;
  return last ? share_of_last : (1 - share_of_last) / static_cast<double>(looks - 1);
}

// The drop that the row which sees least would find; none where one is not known.
std::optional<double> largest_detectable_drop(const Comparison& comparison) {
  double largest = 0;
  for (const ComparisonRow& row : comparison.rows) {
    if (!row.detectable_drop) return std::nullopt;
    largest = std::max(largest, *row.detectable_drop);
  }
  return largest;
}

// Whether a row that is not shown to be faster would have missed larger drops.
bool is_too_blind(const Comparison& comparison, const GateOptions& options) {
  const auto& most = options.largest_detectable_drop;
  return most && std::ranges::any_of(comparison.rows, [&](const ComparisonRow& row) {
           return row.verdict != Verdict::faster &&
                  !(row.detectable_drop && *row.detectable_drop <= *most);
         });
}

bool are_equivalent_at(double alpha, const Comparison& comparison) {
  return std::ranges::all_of(comparison.rows, [=](const ComparisonRow& row) {
    return row.log_difference && !row.doubt && *row.p_worse <= alpha && *row.p_better <= alpha;
  });
}

// By FailOn.
constexpr std::array what_passed = {"no regression shown", "shown to be not worse",
                                    "shown to be equivalent"};

}  // namespace

Comparison corrected_for_rows(Comparison comparison) {
  for (const Verdict verdict : {Verdict::slower, Verdict::faster}) {
    const std::vector<double> adjusted = adjusted_p(comparison, verdict);
    if (adjusted.size() < 2) break;  // one test needs no correction
    comparison.corrected_rows = std::ssize(adjusted);
    size_t at = 0;
    for (ComparisonRow& row : comparison.rows) {
      if (!row.p) continue;
      if (adjusted[at++] <= comparison.options.rule.alpha || row.verdict != verdict) continue;
      row.verdict = Verdict::inconclusive;
      row.reason = std::string(to_string(verdict)) +
                   " by itself, but not after Holm's correction for " +
                   std::to_string(adjusted.size()) + " rows";
      row.more_runs = row.more_sessions = Unknown{row.reason};
    }
  }
  return comparison;
}

GateResult judge(const Comparison& comparison, const GateOptions& options) {
  GateResult result;
  result.options = options;
  const DecisionRule& rule = comparison.options.rule;
  result.alpha = rule.alpha;
  result.adjusted_p = adjusted_p(comparison, Verdict::slower);
  const Rows slower = rows_of(comparison, Verdict::slower);
  const Rows open = rows_of(comparison, Verdict::inconclusive);
  const Rows faster =
      options.fail_on == FailOn::any ? rows_of(comparison, Verdict::faster) : Rows{};
  result.answers = answers_of(comparison, options);
  if (refuse(comparison, result)) return result;
  const std::string beyond = comparison.options.form == ComparisonForm::reference
                                 ? " than " + plain_percent(1 - rule.alpha) + " of machines: "
                                 : " by more than " + plain_percent(rule.margin) + ": ";
  const Rows unshown = rows_where(comparison, [&](const ComparisonRow& row) {
    return !shows_what_is_asked(row, options.fail_on, rule.alpha);
  });
  if (!slower.empty()) {
    end(result, ExitCode::gate_failed, "fail: worse" + beyond + names_of(slower, comparison));
  } else if (!faster.empty()) {
    end(result, ExitCode::gate_failed, "fail: better" + beyond + names_of(faster, comparison));
  } else if (!unshown.empty()) {
    result.inconclusive = true;
    end(result, ExitCode::inconclusive, "inconclusive: " + names_of(unshown, comparison));
  } else if (is_too_blind(comparison, options)) {
    result.inconclusive = true;
    end(result, ExitCode::inconclusive,
        "inconclusive: more runs are needed to find drops as small as --max-detectable");
  } else {
    // Other policies have been shown all that they ask for.
    result.inconclusive = options.fail_on == FailOn::regression && !open.empty();
    result.verdict = std::string("pass: ") + what_passed.at(static_cast<size_t>(options.fail_on));
    if (!open.empty()) result.verdict += "; inconclusive: " + names_of(open, comparison);
  }
  if (holds_within_one_session(comparison)) result.verdict += " (within one session)";
  const std::string power = power_text(comparison);
  if (result.exit_code != ExitCode::gate_failed && !power.empty()) result.verdict += "; " + power;
  return result;
}

std::pair<Comparison, GateResult> judge_sequentially(const Baseline& base, RunSet& next,
                                                     CompareOptions options,
                                                     const GateOptions& gate_options,
                                                     int64_t most_reruns,
                                                     const std::function<void(RunSet&)>& take_run) {
  const int64_t idle = std::max<int64_t>(0, gate_options.minimum_runs - fewest_runs(next));
  const int64_t looks = std::max<int64_t>(1, most_reruns + 1 - idle);
  const double alpha = options.rule.alpha;
  const bool base_is_short =
      fewest_runs(base.recent) < gate_options.minimum_runs;  // runs would not help
  for (int64_t reruns = 0;; ++reruns) {
    options.rule.alpha = alpha * share_of_alpha(reruns == most_reruns, looks);
    Comparison comparison = corrected_for_rows(compare(base.recent, next, options, base.anchor));
    comparison.new_hosts = base.new_hosts;
    GateResult result = judge(comparison, gate_options);
    result.reruns = reruns;
    result.looks = looks;
    result.alpha = alpha;
    if (result.exit_code == ExitCode::ok && gate_options.fail_on == FailOn::regression &&
        result.inconclusive && reruns < most_reruns && are_equivalent_at(alpha, comparison)) {
      result.inconclusive = false;
      result.verdict += "; equivalent at alpha " + plain_percent(alpha) +
                        " of this look alone, which ends the reruns";
    }
    if (!result.inconclusive || base_is_short || reruns == most_reruns) {
      return {comparison, result};
    }
    take_run(next);
  }
}

std::string with_own_reasons(Rows rows, const Comparison& comparison) {
  return with_reasons(std::move(rows), comparison, own_reason);
}

std::string power_text(const Comparison& comparison) {
  const double largest = largest_detectable_drop(comparison).value_or(0);
  if (largest == 0) return "";
  return "a drop of " + plain_percent(std::ceil(1000 * largest) / 1000) +
         " would have been found with " + plain_percent(planned_power) + " chance" +
         (comparison.rows.size() > 1 ? " in any one row, before Holm's correction" : "");
}

}  // namespace nearmetal
