// The decisions that a number of runs allows, and how many more would allow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace nearmetal {

/// How a difference is judged: its interval of confidence 1 - 2 alpha against the margin. For
/// equivalence that is two one-sided tests at alpha (Schuirmann, 1987).
struct DecisionRule {
  double margin = 0.02;  // a new value of (1 - margin) x the base's is just not a regression
  double alpha = 0.05;

  bool operator==(const DecisionRule&) const = default;
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

/// Chance that the interval lies wholly below -margin if the true difference, a logarithm, is this
/// one. Needs at least 2 runs in each group, as do the following (std::invalid_argument).
double power_of_regression(std::span<const RunGroup> groups, double truth,
                           const DecisionRule& rule);
/// Chance that it lies wholly within the margins, at least: what both one-sided tests miss is
/// added up, which is exact but where hardly anything could be shown.
double power_of_equivalence(std::span<const RunGroup> groups, double truth,
                            const DecisionRule& rule);

/// Share by which the new side must be slower for a regression to be found with this chance.
double detectable_drop(std::span<const RunGroup> groups, const DecisionRule& rule, double power);

/// The fewest runs to add to each group that can grow, so that the verdict is firm with this chance
/// if the true difference is `truth`: within the margins, or beyond. None where 1000 do not do.
std::optional<int64_t> more_runs_to_decide(std::span<const RunGroup> groups, double truth,
                                           const DecisionRule& rule, double power);

}  // namespace nearmetal
