#include "reports/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/text.h"

namespace nearmetal {
namespace {

constexpr int64_t fewest_batches = 10;
constexpr double fewest_independent = 10;
constexpr double uncorrelated_below = 0.1;

void require_samples(std::span<const double> samples) {
  if (samples.empty()) throw std::invalid_argument("statistics of no samples");
}

std::vector<double> plain_logarithms(std::span<const double> samples) {
  return transformed(samples, [](double sample) { return std::log(sample); });
}

std::vector<double> batch_means(std::span<const double> samples, int64_t batch_size) {
  std::vector<double> means;
  for (size_t at = 0; at + batch_size <= samples.size(); at += batch_size) {
    means.push_back(mean(samples.subspan(at, batch_size)));
  }
  return means;
}

// The variance of an autoregression's mean, (1 + r) / (1 - r) times that of independent samples.
double variance_of_autoregressive_mean(std::span<const double> samples) {
  const auto count = static_cast<double>(samples.size());
  const double found = lag1_autocorrelation(samples).value_or(0);
  const double correlation = found + (1 + 4 * found) / count;
  const double independent = variance(samples) / count;
  if (correlation < uncorrelated_below) return independent;
  return correlation < 1 ? independent * (1 + correlation) / (1 - correlation)
                         : std::numeric_limits<double>::infinity();
}

// The change of the line through at least 2 samples, last value minus first.
double least_squares_change(std::span<const double> samples, double centre) {
  const auto steps = static_cast<double>(samples.size() - 1);
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double x = static_cast<double>(i) - steps / 2;
    products += x * (samples[i] - centre);
    squares += x * x;
  }
  return products / squares * steps;
}

}  // namespace

double mean(std::span<const double> samples) {
  require_samples(samples);
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double geometric_mean(std::span<const double> samples) {
  return std::exp(mean(plain_logarithms(samples)));
}

double jain_fairness(std::span<const double> samples) {
  require_samples(samples);
  double sum = 0, squares = 0;
  for (const double sample : samples) {
    sum += sample;
    squares += sample * sample;
  }
  return std::min(1.0, sum * sum / (static_cast<double>(samples.size()) * squares));
}

double variance(std::span<const double> samples) {
  if (samples.size() < 2) throw std::invalid_argument("the variance of fewer than 2 samples");
  const double centre = mean(samples);
  double sum = 0;
  for (const double sample : samples) sum += (sample - centre) * (sample - centre);
  return sum / static_cast<double>(samples.size() - 1);
}

double quantile(std::span<const double> samples, double share) {
  require_samples(samples);
  if (!(share >= 0 && share <= 1)) throw std::invalid_argument("a quantile lies within 0 and 1");
  std::vector<double> values(samples.begin(), samples.end());
  const double position = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(position);
  const auto at = values.begin() + below;
  std::nth_element(values.begin(), at, values.end());
  const auto above = std::next(at) == values.end() ? at : std::min_element(at + 1, values.end());
  return std::lerp(*at, *above, position - static_cast<double>(below));
}

double median(std::span<const double> samples) { return quantile(samples, 0.5); }

double robust_deviation(std::span<const double> samples) {
  const double centre = median(samples);
  return 1.4826 * median(transformed(samples, [&](double x) { return std::abs(x - centre); }));
}

std::optional<double> relative_drift(std::span<const double> samples) {
  const double centre = mean(samples);
  if (samples.size() < 2 || centre == 0) return std::nullopt;
  return least_squares_change(samples, centre) / centre;
}

std::optional<double> relative_change(std::span<const double> samples) {
  if (samples.size() < 2) return std::nullopt;
  const std::vector<double> logs = plain_logarithms(samples);
  return std::expm1(least_squares_change(logs, mean(logs)));
}

std::optional<double> lag1_autocorrelation(std::span<const double> samples) {
  const double centre = mean(samples);
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double deviation = samples[i] - centre;
    squares += deviation * deviation;
    if (i > 0) products += deviation * (samples[i - 1] - centre);
  }
  if (samples.size() < 3 || squares == 0) return std::nullopt;
  return std::clamp(products / squares, -1.0, 1.0);
}

std::optional<double> variance_of_mean(std::span<const double> samples) {
  require_samples(samples);
  const auto count = std::ssize(samples);
  if (count < fewest_batches || variance(samples) == 0) return std::nullopt;
  int64_t batch_size = 1;
  std::vector<double> means(samples.begin(), samples.end());
  while (lag1_autocorrelation(means).value_or(0) >= uncorrelated_below &&
         count / (2 * batch_size) >= fewest_batches) {
    batch_size *= 2;
    means = batch_means(samples, batch_size);
  }
  const double squared_error = std::max(variance(means) / static_cast<double>(means.size()),
                                        variance_of_autoregressive_mean(samples));
  if (variance(samples) < fewest_independent * squared_error) return std::nullopt;
  return squared_error;
}

}  // namespace nearmetal
