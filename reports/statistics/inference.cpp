#include "reports/statistics/inference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "reports/statistics/statistics.h"
#include "reports/statistics/students_t.h"

namespace nearmetal {
namespace {

constexpr double outlying_from = 3.5;
constexpr size_t fewest_for_outliers = 10;

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

double t_of(const LogEstimate& estimate, double bound) {
  return (estimate.value - bound) / estimate.standard_error;
}

// Of logarithms.
std::optional<LogEstimate> mean_of(std::span<const double> logs) {
  const auto [least, most] = std::minmax_element(logs.begin(), logs.end());
  if (logs.size() < 2 || *least == *most) return std::nullopt;
  const auto count = static_cast<double>(logs.size());
  return LogEstimate{mean(logs), std::sqrt(variance(logs) / count), count - 1};
}

}  // namespace

std::optional<LogEstimate> log_mean(std::span<const double> values) {
  return mean_of(logarithms(values));
}

std::optional<LogEstimate> paired_difference(std::span<const double> first,
                                             std::span<const double> second) {
  if (first.size() != second.size()) throw std::invalid_argument("pairs of unequal number");
  std::vector<double> differences = logarithms(second);
  const std::vector<double> base = logarithms(first);
  for (size_t i = 0; i < base.size(); ++i) differences[i] -= base[i];
  return mean_of(differences);
}

LogEstimate combined(std::span<const WeightedEstimate> terms) {
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
  return combined(std::vector<WeightedEstimate>{{1, next}, {-1, base}});
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
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
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

std::vector<bool> outliers(std::span<const double> values) {
  if (values.size() < fewest_for_outliers) return std::vector<bool>(values.size(), false);
  const std::vector<double> logs = logarithms(values);
  const double centre = median(logs);
  const double limit = outlying_from * robust_deviation(logs);
  std::vector<bool> result;
  for (const double log : logs) result.push_back(limit > 0 && std::abs(log - centre) > limit);
  return result;
}

}  // namespace nearmetal
