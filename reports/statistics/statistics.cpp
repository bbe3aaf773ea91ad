#include "reports/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace nearmetal {
namespace {

constexpr int64_t fewest_batches = 10;
constexpr double uncorrelated_below = 0.1;

void require_samples(std::span<const double> samples) {
  if (samples.empty()) throw std::invalid_argument("statistics of no samples");
}

std::vector<double> batch_means(std::span<const double> samples, int64_t batch_size) {
  std::vector<double> means;
  for (size_t at = 0; at + batch_size <= samples.size(); at += batch_size) {
    means.push_back(mean(samples.subspan(at, batch_size)));
  }
  return means;
}

}  // namespace

double mean(std::span<const double> samples) {
  require_samples(samples);
  double sum = 0;
  for (const double sample : samples) sum += sample;
  return sum / static_cast<double>(samples.size());
}

double geometric_mean(std::span<const double> samples) {
  require_samples(samples);
  double sum = 0;
  for (const double sample : samples) sum += std::log(sample);
  return std::exp(sum / static_cast<double>(samples.size()));
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
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

double median(std::span<const double> samples) { return quantile(samples, 0.5); }

double robust_deviation(std::span<const double> samples) {
  const double centre = median(samples);
  std::vector<double> distances;
  for (const double sample : samples) distances.push_back(std::abs(sample - centre));
  return 1.4826 * median(distances);
}

std::optional<double> relative_drift(std::span<const double> samples) {
  const double centre = mean(samples);
  if (samples.size() < 2 || centre == 0) return std::nullopt;
  const auto steps = static_cast<double>(samples.size() - 1);
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double x = static_cast<double>(i) - steps / 2;
    products += x * (samples[i] - centre);
    squares += x * x;
  }
  return products / squares * steps / centre;
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
  const double squared_error = variance(means) / static_cast<double>(means.size());
  return squared_error > 0 ? std::optional(squared_error) : std::nullopt;
}

}  // namespace nearmetal
