#include "reports/statistics/power.h"

#include <algorithm>
#include <boost/math/tools/roots.hpp>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "reports/statistics/students_t.h"

namespace nearmetal {
namespace {

constexpr int64_t most_added_runs = 1000;

struct Error {
  double standard_error = 0;
  double degrees_of_freedom = 0;
};

// Welch's, of the sum of the groups' means.
Error error_of(std::span<const RunGroup> groups, int64_t added = 0) {
  double variance = 0;
  double uncertainty = 0;
  for (const RunGroup& group : groups) {
    const auto runs = static_cast<double>(group.runs + (group.can_grow ? added : 0));
    if (runs < 2 || !(group.deviation > 0)) {
      throw std::invalid_argument("planning needs 2 runs, and a spread, in each group");
    }
    const double part = group.deviation * group.deviation / runs;
    variance += part;
    uncertainty += part * part / (runs - 1);
  }
  return {std::sqrt(variance), variance * variance / uncertainty};
}

double critical_t(const Error& error, const DecisionRule& rule) {
  return quantile(complement(StudentsT(error.degrees_of_freedom), rule.alpha));
}

// Chance that Student's t of an estimate that truly lies this many standard errors from the bound
// falls below `t`. Far out the answer is certain, and the series of Boost would not converge.
double chance_below(double t, const Error& error, double distance) {
  constexpr double certain_from = 35;
  if (distance - t > certain_from) return 0;
  if (t - distance > certain_from) return 1;
  return cdf(NonCentralT(error.degrees_of_freedom, distance), t);
}

double regression_power(const Error& error, double truth, const DecisionRule& rule) {
  const double distance = (truth - log_margin(rule)) / error.standard_error;
  return chance_below(-critical_t(error, rule), error, distance);
}

double equivalence_power(const Error& error, double truth, const DecisionRule& rule) {
  const double margin = -log_margin(rule);
  const double t = critical_t(error, rule);
  const double below_upper = chance_below(-t, error, (truth - margin) / error.standard_error);
  const double not_above_lower = chance_below(t, error, (truth + margin) / error.standard_error);
  return std::max(0.0, below_upper - not_above_lower);
}

double deciding_power(const Error& error, double truth, const DecisionRule& rule) {
  const bool within = std::abs(truth) < -log_margin(rule);
  return within ? equivalence_power(error, truth, rule)
                : regression_power(error, -std::abs(truth), rule);
}

}  // namespace

double log_margin(const DecisionRule& rule) { return std::log1p(-rule.margin); }

double power_of_regression(std::span<const RunGroup> groups, double truth,
                           const DecisionRule& rule) {
  return regression_power(error_of(groups), truth, rule);
}

double power_of_equivalence(std::span<const RunGroup> groups, double truth,
                            const DecisionRule& rule) {
  return equivalence_power(error_of(groups), truth, rule);
}

double detectable_drop(std::span<const RunGroup> groups, const DecisionRule& rule, double power) {
  const Error error = error_of(groups);
  const auto missing = [&](double steps) {  // beyond the margin, in standard errors
    return regression_power(error, log_margin(rule) - steps * error.standard_error, rule) - power;
  };
  double most = 2 * critical_t(error, rule) + 2;
  while (missing(most) < 0) most *= 2;  // few degrees of freedom have long tails
  std::uintmax_t iterations = 50;
  const auto close_enough = [](double a, double b) { return b - a < 1e-4; };
  const auto [low, high] =
      boost::math::tools::toms748_solve(missing, 0.0, most, close_enough, iterations);
  return -std::expm1(log_margin(rule) - (low + high) / 2 * error.standard_error);
}

std::optional<int64_t> more_runs_to_decide(std::span<const RunGroup> groups, double truth,
                                           const DecisionRule& rule, double power) {
  error_of(groups);  // for its check
  const auto decides = [&](int64_t added) {
    return deciding_power(error_of(groups, added), truth, rule) >= power;
  };
  if (!decides(most_added_runs)) return std::nullopt;
  int64_t too_few = -1;  // more runs never decide less
  int64_t enough = most_added_runs;
  while (enough - too_few > 1) {
    const int64_t middle = (too_few + enough) / 2;
    (decides(middle) ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace nearmetal
