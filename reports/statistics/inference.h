// The evidence of several runs: estimates on the logarithm of their values, with intervals and
// tests; and the decisions that a number of runs allows.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/value.h"

namespace nearmetal {

// A run, a fresh launch, is the unit: its steps are not independent, and runs differ by more than
// their steps tell (Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", 2013). Speeds
// are compared by ratios, so that all is done on logarithms.

/// A mean of logarithms, or a sum of such means, whose error follows Student's t.
struct LogEstimate {
  double value = 0;
  double standard_error = 0;
  double degrees_of_freedom = 0;
};

/// Throws std::invalid_argument for a value that is not positive and finite.
std::vector<double> logarithms(std::span<const double> values);

/// Mean of the logarithms of `values`, one for each run. None for fewer than 2 runs, and where all
/// are equal: then the spread is below what was resolved, and no error can be told. Throws as
/// logarithms().
std::optional<LogEstimate> log_mean(std::span<const double> values);
/// The same of logarithms.
std::optional<LogEstimate> mean_of_logs(std::span<const double> logs);

/// The weighted sum of independent estimates, each behind its weight, with the degrees of freedom
/// of Welch and Satterthwaite: {+1 new, -1 base} is Welch's comparison of two groups; +1/k and -1/k
/// for k rows their geometric mean; four groups a ratio of ratios, such as scaling efficiency
/// (which is the delta method, exact on logarithms). No terms: std::invalid_argument.
LogEstimate combined(std::span<const std::pair<double, LogEstimate>> terms);

/// new - base.
LogEstimate difference(const LogEstimate& base, const LogEstimate& next);

/// Two-sided interval of the value, a logarithm; `confidence` lies within 0 and 1.
Interval log_interval(const LogEstimate& estimate, double confidence);
/// The same as a factor: exp() of the bounds.
Interval interval(const LogEstimate& estimate, double confidence);

/// p of Student's t test of "the value is 0", two-sided.
double p_of_no_difference(const LogEstimate& estimate);
/// One-sided p of "the value is `bound` or less": small where it lies above.
double p_of_at_most(const LogEstimate& estimate, double bound);
/// One-sided p of "the value is `bound` or more": small where it lies below.
double p_of_at_least(const LogEstimate& estimate, double bound);

/// p values adjusted so that the chance of any false finding among them stays that of one test
/// (Holm, 1979), in the order given.
std::vector<double> holm_adjusted(std::span<const double> p_values);

/// How runs of one side vary.
struct RunSpread {
  double deviation = 0;  // standard deviation of ln(run)
  double between = 0;    // of it, what the noise within the runs does not explain
  double within = 0;     // root mean square of the runs' own relative standard errors
};

/// One-way variance components; `within` is the relative standard error of each run by batch means.
/// None for fewer than 2 runs.
std::optional<RunSpread> run_spread(std::span<const double> values, std::span<const double> within);

/// How a difference is judged: its interval of confidence 1 - 2 alpha against the margin. For
/// equivalence that is two one-sided tests at alpha (Schuirmann, 1987).
struct DecisionRule {
  double margin = 0.02;  // a new value of (1 - margin) x the base's is just not a regression
  double alpha = 0.05;
};

/// The margin on the logarithm: ln(1 - margin), negative. The upper margin is its opposite.
double log_margin(const DecisionRule& rule);

/// One side of a comparison: how its runs vary, how many there are, whether there can be more.
/// Pairs are one group, of their differences.
struct RunGroup {
  double deviation = 0;  // standard deviation of ln(run)
  int64_t runs = 0;
  bool can_grow = true;
};

/// Chance of a firm verdict if the true difference, a logarithm, is this one: within the margins
/// that the interval lies wholly within them, else wholly beyond. What both one-sided tests of the
/// former miss is added up, which is exact but where hardly anything could be shown. Needs at least
/// 2 runs in each group, as do the following (std::invalid_argument).
double chance_of_deciding(std::span<const RunGroup> groups, double truth, const DecisionRule& rule);

/// Share by which the new side must be slower for a regression to be found with this chance, by an
/// estimate of this error.
double detectable_drop(const LogEstimate& error, const DecisionRule& rule, double power);

/// The fewest to add, by `error_with`, the error after so many, so that the verdict is firm with
/// this chance if the true difference is `truth`: within the margins, or beyond. None where 1000 do
/// not do.
std::optional<int64_t> fewest_that_decide(const std::function<LogEstimate(int64_t)>& error_with,
                                          double truth, const DecisionRule& rule, double power);

/// The same of runs for each group that can grow.
std::optional<int64_t> more_runs_to_decide(std::span<const RunGroup> groups, double truth,
                                           const DecisionRule& rule, double power);

// Runs of one session share what that session did to all of them, so that sessions are drawn first,
// and runs within them (two-stage sampling): the mean of a session is the unit.

/// Logarithms of the runs of one arm, by the name of their session; none is empty.
using Sessions = std::map<std::string, std::vector<double>>;

/// The mean of each session, in the order of their names.
std::vector<double> session_means(const Sessions& sessions);

/// One of several means that are added up: {+1 new, -1 base} is the logarithm of a ratio.
struct SessionTerm {
  double weight = 1;
  Sessions runs;
};

/// The terms whose sessions are more than half in all of them, at least two, are of blocks: what a
/// session did to all terms cancels in the sum within it. Others are independent, each with the
/// spread of the means of its own sessions; of two terms as in session_difference(). None where
/// their sessions do not tell how sessions differ.
std::optional<LogEstimate> sum_over_sessions(std::span<const SessionTerm> terms);

struct SessionDifference {
  LogEstimate estimate;        // new - base, of means of sessions
  bool are_blocks = false;     // sessions of both sides
  int64_t base = 0, next = 0;  // sessions that count
};

/// Of sides whose sessions are blocks, the differences within them. Else the variance of the means
/// of sessions is pooled over the sides where both have equally many, and each side's own where the
/// numbers differ (Welch). Where a side has a single session, or `others` stand for the base (they
/// are of the same work and may contain the base's, none of which counts twice), it is pooled over
/// the sides that have several, and sessions of fewer runs than theirs err by more. None where no
/// side has two sessions, or where no value differs from another.
std::optional<SessionDifference> session_difference(const Sessions& base, const Sessions& next,
                                                    const Sessions& others = {});

/// Machines of a kind that must have been measured to tell how they differ.
inline constexpr size_t fewest_machines = 3;

/// One more machine - the mean of the others, with the error that it has where it is drawn as they
/// were: how machines differ, and the error of that mean. A log_interval() of it is a prediction
/// interval; where it excludes 0, the machine is beyond what others of its kind show. The mean of a
/// machine is that of its sessions; where it has fewer of them, or of a single session fewer runs,
/// than the others have, what these vary by within machines is added. None of fewer than
/// `fewest_machines`, or where these are all equal.
std::optional<LogEstimate> difference_from_machines(std::span<const Sessions> machines,
                                                    const Sessions& next);

/// The fewest sessions to add to each side that can grow, each with as many runs as now, so that
/// the verdict is firm with this chance if the true difference is `truth`. None where 1000 do not
/// do.
std::optional<int64_t> more_sessions_to_decide(const SessionDifference& found, double truth,
                                               bool base_can_grow, const DecisionRule& rule,
                                               double power);

}  // namespace nearmetal
