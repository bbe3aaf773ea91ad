// Two sets of runs: the difference between them, and what may be said of it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/attribution/attribution.h"
#include "reports/compare/environment_differences.h"
#include "reports/compare/run_set.h"
#include "reports/compare/same_bits.h"
#include "reports/document/metric.h"
#include "reports/document/special_members.h"
#include "reports/statistics/inference.h"

namespace nearmetal {

/// The place of the difference's interval, at confidence 1 - 2 alpha, against the margin:
///  - equivalent: wholly within; slower, faster: wholly beyond; inconclusive: neither, or none;
///  - within: of a machine against a reference, whose interval is that of one more machine like
///    those: it includes 0, so that nothing is shown to be unlike them; never that it is equal;
///  - not_comparable: keys differ, or one side lacks the row or its metric; invalid: no complete
///    run.
/// "Slower" means worse: less throughput, more time.
enum class Verdict { not_comparable, invalid, slower, inconclusive, equivalent, within, faster };
constexpr auto names_of(Verdict) {
  return std::array{"NOT-COMPARABLE", "INVALID", "SLOWER", "INCONCLUSIVE",
                    "EQUIVALENT",     "WITHIN",  "FASTER"};
}

/// How a difference and its error were estimated: from two independent samples of runs (Welch),
/// from pairs of runs, as the mean of the rows of several arms, from means of sessions, beside a
/// trend of both sides, or as one more machine against others.
/// All but those of sessions and machines hold within one session.
enum class Method { none, welch, paired, mean_of_rows, sessions, trend, machines };
constexpr auto names_of(Method) {
  return std::array{"", "welch", "paired", "mean of rows", "sessions", "trend", "machines"};
}

/// Rows by verdict, the worst first; or by layout, the one of the fewest ranks first.
enum class RowOrder { verdict, layout };
constexpr auto names_of(RowOrder) { return std::array{"verdict", "layout"}; }

/// Stand for metrics of the runs: the throughput in their unit, all that is known of any.
inline constexpr const char* throughput_of_runs = "throughput";
inline constexpr const char* all_of_runs = "all";

struct CompareOptions {
  DecisionRule rule;
  std::vector<std::string> metrics;  // names, or the words above; empty: throughput
  RowOrder order = RowOrder::verdict;
  std::vector<std::string> allow_differ;  // fields of the comparable key
  ComparisonForm form = ComparisonForm::sets;
  std::string reference{};                // its name, by that form
  std::string base_title{}, new_title{};  // of sets that were named; empty: as the form says
  bool base_can_grow = true;              // whether more runs of the base can be had
  bool same_bits = false;                 // whether digests are compared
  bool bare_is_virtual = false;           // whether the base shows a hypervisor, as compare() finds
};

/// Confidence of the intervals of each side by itself; those of differences follow alpha.
inline constexpr double side_confidence = 0.95;
/// Chance to decide, for which numbers of runs are planned.
inline constexpr double planned_power = 0.8;

/// A warning of runs, or of ranks and jobs of them.
struct RunWarning {
  Warning warning;                // the worst, else the first
  std::vector<size_t> runs{};     // that gave it, by their index
  bool same = true;               // in these words
  std::optional<size_t> worst{};  // index of the run with the worst figure; none: all are equal
  std::optional<std::pair<Figure, Figure>> range{};  // of all, where their unit is one
};

struct SideSummary {
  std::string name{};            // in a sentence: "the base", "the VM"
  int64_t runs = 0;              // runs that count
  int64_t left_out = 0;          // partial, failed or without the figure
  int64_t shared = 0;            // of the runs, those whose monitor saw other processes
  int64_t sessions = 0;          // sessions of the runs
  int64_t machines = 0;          // of the runs of a reference; else 0
  int64_t days = 0;              // the same: on which they began
  std::vector<double> values{};  // of the runs that count
  Maybe<double> geometric_mean = Unknown{"no complete run"};
  Maybe<Interval> interval = Unknown{"fewer than 2 runs, or all equal"};
  Maybe<RunSpread> spread = Unknown{"fewer than 2 runs"};
  Maybe<double> run_seconds;  // that a run takes, the mean
  bool emulated = false;      // measured in emulated VMs
  std::string disturbed;      // why a run was not shown to be taken in peace; empty: all were
  std::vector<RunWarning> warnings;

  Estimate mean() const { return {*geometric_mean, interval}; }  // where it is known
};

/// As many as sessions have on the average, rounded.
inline int64_t runs_of_a_session(int64_t runs, int64_t sessions) {
  return (runs + sessions / 2) / sessions;
}

/// One layout and metric.
struct ComparisonRow {
  NM_DECLARE_SPECIAL_MEMBERS(ComparisonRow);
  std::string arm;
  std::string since;  // day of the anchor of a baseline that this row is compared with; empty: none
  std::string metric;
  Verdict verdict = Verdict::inconclusive;
  std::string reason;                // of the verdict, in words
  std::optional<std::string> doubt;  // why the runs leave no verdict, whatever the mean says
  Method method = Method::none;
  SideSummary base_side;
  SideSummary new_side;
  Maybe<LogEstimate> log_difference;    // ln(new / base)
  Maybe<double> difference;             // new / base - 1
  Maybe<Interval> difference_interval;  // of confidence 1 - 2 alpha
  Maybe<double> median_difference;      // as difference, by Hodges and Lehmann: no mean
  Maybe<Interval> median_interval;      // of the same confidence
  Maybe<double> p;                      // of no difference, Student's t
  Maybe<double> rank_test_p;            // of no difference: Mann-Whitney, of pairs Wilcoxon
  Maybe<double> p_worse;                // of "worse by the margin or more": small shows it is not
  Maybe<double> p_better;               // of "better by the margin or more"
  Maybe<double> p_regression;           // of "not worse than the margin": small shows a regression
  Maybe<double> detectable_drop;        // share that is found with the planned power
  Maybe<int64_t> more_runs;             // a side, that would decide with the planned power
  Maybe<int64_t> more_sessions;         // of as many runs, that would
  std::vector<Warning> notes;
  Sessions base_sessions{}, new_sessions{};  // the runs that count, of several sessions
};

struct Comparison {
  CompareOptions options;
  std::vector<std::string> work{};               // of both sides, as work_lines()
  std::vector<KeyDifference> key_differences{};  // of all rows, distinct
  std::vector<ComparisonRow> rows{};             // in the order that is asked for
  int64_t corrected_rows = 0;                    // judged together (Holm); 0: each by itself
  std::vector<EnvironmentDifference> environment_differences{};
  bool on_gpus = false;            // all runs of both sides
  bool on_other_machines = false;  // the base has runs of none of these; a VM is one of its own
  std::vector<Explanation> explanations{};       // of the arms whose runs have probes
  std::vector<SameBits> bits{};                  // of the arms of both sides, if asked for
  std::vector<Warning> notes{};                  // of the whole
  std::vector<std::string> new_hosts{};          // of the new runs, that a baseline never had
  std::vector<ComparisonRow> geometric_means{};  // of the rows of a metric, where 2 or more
};

/// How the sides are called, in tables and charts, and in sentences.
struct SideWords {
  std::string base_title, new_title, base_name, new_name;
};
const SideWords& words_of(ComparisonForm form, bool bare_is_virtual = false);
inline SideWords words_of(const CompareOptions& options) {
  const std::string &base = options.base_title, &next = options.new_title;
  if (!base.empty()) return {base, next, base, next};
  return words_of(options.form, options.bare_is_virtual);
}

/// "run", or "run since 2026-01-31" where it is compared with an anchor.
std::string title_of(const ComparisonRow& row);

/// Whether rows were judged by runs that cannot tell how sessions differ.
bool holds_within_one_session(const Comparison& comparison);

struct ArmPair {
  std::string name;              // of both, or "a | b"
  const RunArm* base = nullptr;  // either may be missing
  const RunArm* next = nullptr;
};

/// Arms of the same name, or the only arm of each side whatever their names; of unlike jobs each
/// with the one in its place.
std::vector<ArmPair> paired_arms(const RunSet& base, const RunSet& next);

/// Compares all pairs of arms. Arms of `anchor`, the first runs of a baseline, are compared with
/// the new ones as well: what is lost in small steps is seen from there alone. Throws
/// std::invalid_argument for options that make no sense, and as same_bits() does.
Comparison compare(const RunSet& base, const RunSet& next, const CompareOptions& options,
                   const RunSet& anchor = {});

}  // namespace nearmetal
