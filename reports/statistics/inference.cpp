#include "reports/statistics/inference.h"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/tools/roots.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "base/text.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// Student's t in doubles: precise enough here, and four times as fast as Boost's default of long
// doubles.
using InDouble = boost::math::policies::policy<boost::math::policies::promote_double<false>>;
using StudentsT = boost::math::students_t_distribution<double, InDouble>;
using ChiSquared = boost::math::chi_squared_distribution<double, InDouble>;
using NonCentralT = boost::math::non_central_t_distribution<double, InDouble>;

double t_of(const LogEstimate& estimate, double bound) {
  return (estimate.value - bound) / estimate.standard_error;
}

constexpr int64_t most_added = 1000;

// Welch's error of the sum of the groups' means; its value does not matter.
LogEstimate error_of(std::span<const RunGroup> groups, int64_t added = 0) {
  std::vector<std::pair<double, LogEstimate>> means;
  for (const RunGroup& group : groups) {
    const auto runs = static_cast<double>(group.runs + (group.can_grow ? added : 0));
    if (runs < 2 || !(group.deviation > 0)) {
      throw std::invalid_argument("planning needs 2 runs, and a spread, in each group");
    }
    means.push_back({1, {0, group.deviation / std::sqrt(runs), runs - 1}});
  }
  return combined(means);
}

double critical_t(const LogEstimate& error, const DecisionRule& rule) {
  return quantile(complement(StudentsT(error.degrees_of_freedom), rule.alpha));
}

// Chance that Student's t of an estimate that truly lies this many standard errors from the bound
// falls below `t`. Far out the series of Boost would not converge: the noise of the estimate is
// nothing there beside that of its error.
double chance_below(double t, const LogEstimate& error, double distance) {
  constexpr double far = 35;
  const double degrees = error.degrees_of_freedom;
  if (std::abs(distance) < far) return cdf(NonCentralT(degrees, distance), t);
  if ((t < 0) != (distance < 0)) return distance < 0 ? 1 : 0;
  const double ratio = distance / t;
  const double below = cdf(ChiSquared(degrees), std::min(1e6, degrees * ratio * ratio));
  return t < 0 ? below : 1 - below;
}

double regression_power(const LogEstimate& error, double truth, const DecisionRule& rule) {
  const double distance = (truth - log_margin(rule)) / error.standard_error;
  return chance_below(-critical_t(error, rule), error, distance);
}

double equivalence_power(const LogEstimate& error, double truth, const DecisionRule& rule) {
  const double margin = -log_margin(rule);
  const double t = critical_t(error, rule);
  const double below_upper = chance_below(-t, error, (truth - margin) / error.standard_error);
  const double not_above_lower = chance_below(t, error, (truth + margin) / error.standard_error);
  return std::max(0.0, below_upper - not_above_lower);
}

double deciding_power(const LogEstimate& error, double truth, const DecisionRule& rule) {
  const bool within = std::abs(truth) < -log_margin(rule);
  return within ? equivalence_power(error, truth, rule)
                : regression_power(error, -std::abs(truth), rule);
}

}  // namespace

std::vector<double> logarithms(std::span<const double> values) {
  std::vector<double> logs;
  for (const double value : values) {
    if (!(value > 0 && std::isfinite(value))) {
      throw std::invalid_argument("the logarithm of a value that is not positive");
    }
    logs.push_back(std::log(value));
  }
  return logs;
}

std::optional<LogEstimate> mean_of_logs(std::span<const double> logs) {
  constexpr double resolved = 1e-12;  // more than rounding leaves of equal values
  if (logs.size() < 2 || std::ranges::max(logs) - std::ranges::min(logs) < resolved) {
    return std::nullopt;
  }
  const auto count = static_cast<double>(logs.size());
  return LogEstimate{mean(logs), std::sqrt(variance(logs) / count), count - 1};
}

std::optional<LogEstimate> log_mean(std::span<const double> values) {
  return mean_of_logs(logarithms(values));
}

LogEstimate combined(std::span<const std::pair<double, LogEstimate>> terms) {
  if (terms.empty()) throw std::invalid_argument("a sum of no estimates");
  LogEstimate sum;
  double variance_of_sum = 0;
  double uncertainty = 0;  // of that variance
  for (const auto& [weight, estimate] : terms) {
    const double part = weight * weight * estimate.standard_error * estimate.standard_error;
    sum.value += weight * estimate.value;
    variance_of_sum += part;
    uncertainty += part * part / estimate.degrees_of_freedom;
  }
  sum.standard_error = std::sqrt(variance_of_sum);
  sum.degrees_of_freedom = variance_of_sum * variance_of_sum / uncertainty;
  return sum;
}

LogEstimate difference(const LogEstimate& base, const LogEstimate& next) {
  const std::pair<double, LogEstimate> terms[] = {{1, next}, {-1, base}};
  return combined(terms);
}

Interval log_interval(const LogEstimate& estimate, double confidence) {
  const StudentsT t(estimate.degrees_of_freedom);
  const double half_width = quantile(complement(t, (1 - confidence) / 2)) * estimate.standard_error;
  return {estimate.value - half_width, estimate.value + half_width};
}

Interval interval(const LogEstimate& estimate, double confidence) {
  const Interval logs = log_interval(estimate, confidence);
  constexpr double largest = std::numeric_limits<double>::max();  // of two runs far apart
  return {std::exp(logs.lower), std::min(largest, std::exp(logs.upper))};
}

double p_of_no_difference(const LogEstimate& estimate) {
  const StudentsT t(estimate.degrees_of_freedom);
  return 2 * cdf(complement(t, std::abs(t_of(estimate, 0))));
}

double p_of_at_most(const LogEstimate& estimate, double bound) {
  return cdf(complement(StudentsT(estimate.degrees_of_freedom), t_of(estimate, bound)));
}

double p_of_at_least(const LogEstimate& estimate, double bound) {
  return cdf(StudentsT(estimate.degrees_of_freedom), t_of(estimate, bound));
}

std::vector<double> holm_adjusted(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto left = static_cast<double>(order.size() - i);
    largest = std::min(1.0, std::max(largest, left * p_values[order[i]]));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

std::optional<RunSpread> run_spread(std::span<const double> values,
                                    std::span<const double> within) {
  const std::vector<double> logs = logarithms(values);
  if (logs.size() < 2) return std::nullopt;
  const double total = variance(logs);
  double noise = 0;
  for (const double error : within) noise += error * error / static_cast<double>(within.size());
  return RunSpread{std::sqrt(total), std::sqrt(std::max(0.0, total - noise)), std::sqrt(noise)};
}

double log_margin(const DecisionRule& rule) { return std::log1p(-rule.margin); }

double chance_of_deciding(std::span<const RunGroup> groups, double truth,
                          const DecisionRule& rule) {
  return deciding_power(error_of(groups), truth, rule);
}

double detectable_drop(const LogEstimate& error, const DecisionRule& rule, double power) {
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

std::optional<int64_t> fewest_that_decide(const std::function<LogEstimate(int64_t)>& error_with,
                                          double truth, const DecisionRule& rule, double power) {
  const auto decides = [&](int64_t added) {
    return deciding_power(error_with(added), truth, rule) >= power;
  };
  if (!decides(most_added)) return std::nullopt;
  int64_t too_few = -1;  // more never decide less
  int64_t enough = most_added;
  while (enough - too_few > 1) {
    const int64_t middle = (too_few + enough) / 2;
    (decides(middle) ? enough : too_few) = middle;
  }
  return enough;
}

std::optional<int64_t> more_runs_to_decide(std::span<const RunGroup> groups, double truth,
                                           const DecisionRule& rule, double power) {
  error_of(groups);  // for its check
  return fewest_that_decide([&](int64_t added) { return error_of(groups, added); }, truth, rule,
                            power);
}

namespace {

double count(const Sessions& sessions) { return static_cast<double>(sessions.size()); }

// Mean of 1 / runs: the part of a run's variance that is left in the mean of a session.
double share_left(const Sessions& sessions) {
  double sum = 0;
  for (const auto& [name, session] : sessions) sum += 1 / static_cast<double>(session.size());
  return sum / count(sessions);
}

// The sums of the terms within the sessions that all of them have; empty where these are no blocks.
std::vector<double> blocks_of(std::span<const SessionTerm> terms) {
  std::vector<double> sums;
  size_t most = 0;
  for (const SessionTerm& term : terms) most = std::max(most, term.runs.size());
  for (const auto& session : terms.front().runs) {
    double sum = 0;
    const bool in_all = std::ranges::all_of(terms, [&](const SessionTerm& term) {
      const auto found = term.runs.find(session.first);
      if (found != term.runs.end()) sum += term.weight * mean(found->second);
      return found != term.runs.end();
    });
    if (in_all) sums.push_back(sum);
  }
  return sums.size() >= 2 && 2 * sums.size() > most ? sums : std::vector<double>{};
}

std::optional<SessionDifference> difference_of_means(const Sessions& base, const Sessions& next) {
  const std::vector<double> of_base = session_means(base), of_next = session_means(next);
  const double n = count(base), m = count(next);
  const double base_part = variance(of_base) / n, next_part = variance(of_next) / m;
  const double error = base_part + next_part;
  if (!(error > 0)) return std::nullopt;
  // Of equally many the pooled error is the same, with all degrees of freedom.
  const double degrees =
      n == m ? n + m - 2
             : error * error / (base_part * base_part / (n - 1) + next_part * next_part / (m - 1));
  return SessionDifference{.estimate = {mean(of_next) - mean(of_base), std::sqrt(error), degrees},
                           .base = std::ssize(base),
                           .next = std::ssize(next)};
}

// One variance between sessions, of all sides that have several: that of their means without what
// the runs in them explain, which is added for the runs that there are.
std::optional<SessionDifference> pooled_difference(const Sessions& base, const Sessions& next,
                                                   const Sessions& others) {
  PooledVariance of_means, of_runs;
  double explained = 0;
  for (const Sessions* side : {others.empty() ? &base : &others, &next}) {
    of_means.add(session_means(*side));
    explained += (count(*side) - 1) * share_left(*side);
    for (const auto& [name, runs] : *side) of_runs.add(runs);
  }
  if (of_means.degrees_of_freedom == 0) return std::nullopt;
  const double n = count(base), m = count(next), within = of_runs.value();
  const double between =
      std::max(0.0, of_means.value() - within * explained / of_means.degrees_of_freedom);
  const double error =
      between * (1 / n + 1 / m) + within * (share_left(base) / n + share_left(next) / m);
  if (!(error > 0)) return std::nullopt;
  return SessionDifference{.estimate = {mean(session_means(next)) - mean(session_means(base)),
                                        std::sqrt(error), of_means.degrees_of_freedom},
                           .base = std::ssize(base),
                           .next = std::ssize(next)};
}

// The error after so many more sessions, whose means spread as those so far.
LogEstimate error_with_more(const SessionDifference& found, bool base_can_grow, int64_t added) {
  const auto grown = [&](int64_t of_base, int64_t of_next) {
    const auto n = static_cast<double>(of_base), m = static_cast<double>(of_next);
    return found.are_blocks ? std::pair(1 / m, m - 1) : std::pair(1 / n + 1 / m, n + m - 2);
  };
  const auto [part, degrees] = grown(found.base, found.next);
  const auto [new_part, new_degrees] =
      grown(found.base + (base_can_grow ? added : 0), found.next + added);
  return {0, found.estimate.standard_error * std::sqrt(new_part / part),
          found.estimate.degrees_of_freedom + new_degrees - degrees};
}

}  // namespace

std::vector<double> session_means(const Sessions& sessions) {
  return transformed(sessions, [](const auto& session) { return mean(session.second); });
}

std::optional<SessionDifference> session_difference(const Sessions& base, const Sessions& next,
                                                    const Sessions& others) {
  if (base.empty() || next.empty()) return std::nullopt;
  const SessionTerm terms[] = {{1, next}, {-1, base}};
  if (const std::vector<double> blocks = blocks_of(terms); !blocks.empty()) {
    const auto estimate = mean_of_logs(blocks);
    if (!estimate) return std::nullopt;
    return SessionDifference{.estimate = *estimate,
                             .are_blocks = true,
                             .base = std::ssize(blocks),
                             .next = std::ssize(blocks)};
  }
  const bool both_spread = base.size() > 1 && next.size() > 1;
  return both_spread && others.empty() ? difference_of_means(base, next)
                                       : pooled_difference(base, next, others);
}

std::optional<LogEstimate> sum_over_sessions(std::span<const SessionTerm> terms) {
  if (const std::vector<double> blocks = blocks_of(terms); !blocks.empty()) {
    return mean_of_logs(blocks);
  }
  const bool is_difference = terms.size() == 2 && terms[0].weight == -terms[1].weight;
  if (is_difference) {
    auto found = session_difference(terms[1].runs, terms[0].runs);
    if (!found) return std::nullopt;
    found->estimate.value *= terms[0].weight;
    found->estimate.standard_error *= std::abs(terms[0].weight);
    return found->estimate;
  }
  std::vector<std::pair<double, LogEstimate>> parts;
  for (const SessionTerm& term : terms) {
    const auto estimate = mean_of_logs(session_means(term.runs));
    if (!estimate) return std::nullopt;
    parts.emplace_back(term.weight, *estimate);
  }
  return combined(parts);
}

std::optional<LogEstimate> difference_from_machines(std::span<const Sessions> machines,
                                                    const Sessions& next) {
  if (machines.size() < fewest_machines) return std::nullopt;
  // What a machine has several of: sessions, or where none has, runs.
  const bool by_sessions =
      std::ranges::any_of(machines, [](const Sessions& of_one) { return of_one.size() > 1; });
  const auto parts_of = [&](const Sessions& of_one) {
    return by_sessions ? session_means(of_one) : of_one.begin()->second;
  };
  std::vector<double> means;
  PooledVariance of_parts;
  double shares = 0;
  for (const Sessions& of_one : machines) {
    const std::vector<double> parts = parts_of(of_one);
    means.push_back(mean(parts));
    shares += 1 / static_cast<double>(parts.size());
    of_parts.add(parts);
  }
  const auto count = static_cast<double>(means.size());
  const double between = variance(means);
  if (between == 0) return std::nullopt;
  const std::vector<double> parts = parts_of(next);
  const double lacking = 1 / static_cast<double>(parts.size()) - shares / count;
  const double within = of_parts.value() * std::max(0.0, lacking);
  return LogEstimate{mean(session_means(next)) - mean(means),
                     std::sqrt(between * (1 + 1 / count) + within), count - 1};
}

std::optional<int64_t> more_sessions_to_decide(const SessionDifference& found, double truth,
                                               bool base_can_grow, const DecisionRule& rule,
                                               double power) {
  return fewest_that_decide(
      [&](int64_t added) { return error_with_more(found, base_can_grow, added); }, truth, rule,
      power);
}

}  // namespace nearmetal
