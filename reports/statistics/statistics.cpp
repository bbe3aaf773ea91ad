#include "reports/statistics/statistics.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/text.h"
#include "reports/statistics/inference.h"

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

// Rank tests are exact up to so many values, some milliseconds of counting.
constexpr size_t most_for_exact = 60;

struct Ranks {
  std::vector<int64_t> doubled;  // twice the mean rank of each value, in ascending order
  int64_t doubled_sum_of_first = 0;
  double ties = 0;  // sum of t^3 - t over groups of t equal values
};

struct RankedValue {
  double value;
  bool is_first;
};

Ranks ranks_of(std::vector<RankedValue> values) {
  std::ranges::sort(values, {}, &RankedValue::value);
  Ranks ranks;
  for (size_t begin = 0, end = 0; begin < values.size(); begin = end) {
    while (end < values.size() && values[end].value == values[begin].value) ++end;
    const auto doubled_mean = static_cast<int64_t>(begin + 1 + end);
    for (size_t i = begin; i < end; ++i) {
      ranks.doubled.push_back(doubled_mean);
      if (values[i].is_first) ranks.doubled_sum_of_first += doubled_mean;
    }
    const auto group = static_cast<double>(end - begin);
    ranks.ties += group * group * group - group;
  }
  return ranks;
}

// Ways to choose `chosen` of the ranks, by the sum of what was chosen: counted rank by rank, in
// doubles as there are up to 1e17.
std::vector<double> counts_by_sum(const std::vector<int64_t>& ranks, size_t chosen) {
  const int64_t total = std::accumulate(ranks.begin(), ranks.end(), int64_t{0});
  std::vector<std::vector<double>> counts(chosen + 1, std::vector<double>(total + 1));
  counts[0][0] = 1;
  for (const int64_t rank : ranks) {
    for (size_t count = chosen; count > 0; --count) {
      for (int64_t sum = total; sum >= rank; --sum)
        counts[count][sum] += counts[count - 1][sum - rank];
    }
  }
  return counts[chosen];
}

// Ways to choose any of the ranks, by the sum of what was chosen.
std::vector<double> counts_of_signs(const std::vector<int64_t>& ranks) {
  const int64_t total = std::accumulate(ranks.begin(), ranks.end(), int64_t{0});
  std::vector<double> counts(total + 1);
  counts[0] = 1;
  for (const int64_t rank : ranks) {
    for (int64_t sum = total; sum >= rank; --sum) counts[sum] += counts[sum - rank];
  }
  return counts;
}

// The p-value of a statistic in steps of 1 around its mean.
double normal_p(double distance_from_mean, double variance) {
  if (variance <= 0) return 1;  // all values are equal
  const double distance = std::max(0.0, std::abs(distance_from_mean) - 0.5);
  return std::min(1.0, 2 * cdf(complement(boost::math::normal(), distance / std::sqrt(variance))));
}

// Of all ways to deal ranks out, how many give each rank sum, from the least on.
std::vector<double> rank_sum_counts(size_t first, size_t second) {
  std::vector<int64_t> ranks(first + second);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<double> counts = counts_by_sum(ranks, first);
  counts.erase(counts.begin(),
               counts.begin() + static_cast<std::ptrdiff_t>(first * (first - 1) / 2));
  return counts;
}

// The same of each sum of the ranks that have a sign.
std::vector<double> signed_rank_counts(size_t values) {
  std::vector<int64_t> ranks(values);
  std::iota(ranks.begin(), ranks.end(), 1);
  return counts_of_signs(ranks);
}

// Two-sided p of a sum that was seen, by how many ways give each sum, from 0 on.
double exact_p(const std::vector<double>& counts, int64_t seen) {
  double all = 0;
  double below = 0;  // at or below what was seen
  double above = 0;
  for (size_t sum = 0; sum < counts.size(); ++sum) {
    all += counts[sum];
    if (static_cast<int64_t>(sum) <= seen) below += counts[sum];
    if (static_cast<int64_t>(sum) >= seen) above += counts[sum];
  }
  return std::min(1.0, 2 * std::min(below, above) / all);
}

constexpr double outlying_from = 3.5;
constexpr size_t fewest_for_median = 10, fewest_for_mean = 4, fewest_for_groups = 4;
constexpr double surprise = 0.01;

// Externally studentised (Cook and Weisberg, "Residuals and Influence in Regression", 1982).
bool is_far_from_others(const std::vector<double>& logs, size_t at) {
  std::vector<double> others = logs;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(at));
  const auto of_others = mean_of_logs(others);
  if (!of_others) return false;  // equal but for rounding
  const auto count = static_cast<double>(logs.size());
  const LogEstimate difference{logs[at] - of_others->value,
                               of_others->standard_error * std::sqrt(count),
                               of_others->degrees_of_freedom};
  return p_of_no_difference(difference) * count < surprise;
}

double squares(std::span<const double> part) {
  return variance(part) * static_cast<double>(part.size() - 1);
}

std::vector<double> counts_of_sums(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> counts(a.size() + b.size() - 1);
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size(); ++j) counts[i + j] += a[i] * b[j];
  }
  return counts;
}

// How many orders of so many values have each number of inversions.
std::vector<double> counts_of_inversions(size_t values) {
  std::vector<double> counts = {1};
  for (size_t n = 2; n <= values; ++n) counts = counts_of_sums(counts, std::vector<double>(n, 1));
  return counts;
}

// How many sums at one end have together a chance of `share` at most.
size_t sums_below(const std::vector<double>& counts, double share) {
  double all = 0, below = 0;
  for (const double count : counts) all += count;
  size_t sums = 0;
  const double most = share * all * (1 + 1e-12);  // 1 - 0.9 is a little less than 0.1
  while (sums < counts.size() && (below += counts[sums]) <= most) ++sums;
  return sums;
}

// The same where there are many, of sums of this mean and variance.
size_t sums_below(double mean, double variance, double share) {
  return static_cast<size_t>(
      std::max(0.0, mean + quantile(boost::math::normal(), share) * std::sqrt(variance)));
}

// Millions of values, one for each pair of runs, which are counted and not held.
struct PairValues {
  size_t count = 0;
  double least = 0, most = 0;
  std::function<size_t(double)> at_most;  // how many are at most so large

  // The value with so many below it, as precisely as logarithms are known.
  double ranked(size_t below) const {
    constexpr double resolution = 1e-15;
    if (at_most(least) > below) return least;
    double low = least, high = most;
    while (high - low > resolution * std::max(1.0, std::abs(high))) {
      const double middle = std::midpoint(low, high);
      (at_most(middle) > below ? high : low) = middle;
    }
    return high;
  }
};

// The median, with bounds that leave out so many of the values at each end, less one.
Shift with_bounds(const PairValues& values, size_t left_out) {
  const double median =
      std::midpoint(values.ranked((values.count - 1) / 2), values.ranked(values.count / 2));
  Shift shift{median, Unknown{"too few values for such an interval"}};
  if (left_out == 0 || 2 * left_out > values.count) return shift;
  shift.interval = Interval{values.ranked(left_out - 1), values.ranked(values.count - left_out)};
  return shift;
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

void PooledVariance::add(std::span<const double> group) {
  if (group.size() < 2) return;
  sum += squares(group);
  degrees_of_freedom += static_cast<double>(group.size() - 1);
}

double PooledVariance::value() const {
  return degrees_of_freedom > 0 ? sum / degrees_of_freedom : 0;
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

std::vector<bool> outliers(std::span<const double> values) {
  std::vector<bool> found(values.size(), false);
  if (values.size() < fewest_for_mean) return found;
  const std::vector<double> logs = logarithms(values);
  const double limit = logs.size() < fewest_for_median ? 0 : outlying_from * robust_deviation(logs);
  const double middle = median(logs);
  for (size_t i = 0; i < logs.size(); ++i) {
    const bool far = limit > 0 && std::abs(logs[i] - middle) > limit;
    found[i] = far || is_far_from_others(logs, i);
  }
  return found;
}

double mann_whitney_p(std::span<const double> first, std::span<const double> second) {
  if (first.empty() || second.empty()) throw std::invalid_argument("a rank test of no values");
  std::vector<RankedValue> values;
  for (const double value : first) values.push_back({value, true});
  for (const double value : second) values.push_back({value, false});
  const Ranks ranks = ranks_of(std::move(values));
  if (first.size() + second.size() <= most_for_exact) {
    return exact_p(counts_by_sum(ranks.doubled, first.size()), ranks.doubled_sum_of_first);
  }
  const auto m = static_cast<double>(first.size()), n = static_cast<double>(second.size());
  const double all = m + n;
  const double u = static_cast<double>(ranks.doubled_sum_of_first) / 2 - m * (m + 1) / 2;
  return normal_p(u - m * n / 2, m * n / 12 * (all + 1 - ranks.ties / (all * (all - 1))));
}

double wilcoxon_p(std::span<const double> differences) {
  if (differences.empty()) throw std::invalid_argument("a rank test of no values");
  std::vector<RankedValue> sizes;
  for (const double difference : differences) {
    if (difference != 0) sizes.push_back({std::abs(difference), difference > 0});
  }
  if (sizes.empty()) return 1;
  const auto n = static_cast<double>(sizes.size());
  const Ranks ranks = ranks_of(std::move(sizes));
  if (n <= most_for_exact) {
    return exact_p(counts_of_signs(ranks.doubled), ranks.doubled_sum_of_first);
  }
  const double sum = static_cast<double>(ranks.doubled_sum_of_first) / 2;
  return normal_p(sum - n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24 - ranks.ties / 48);
}

double trend_p(std::span<const std::vector<double>> sides) {
  int64_t difference = 0, pairs = 0;  // of pairs that rise and fall
  double variance = 0;
  size_t count = 0;
  std::vector<double> counts = {1};
  for (const std::vector<double>& side : sides) {
    for (size_t i = 0; i < side.size(); ++i) {
      for (size_t j = 0; j < i; ++j) difference += (side[i] > side[j]) - (side[i] < side[j]);
    }
    const auto n = static_cast<double>(side.size());
    variance += n * (n - 1) * (2 * n + 5) / 18;
    pairs += static_cast<int64_t>(side.size() * (side.size() - 1) / 2);
    count += side.size();
    if (count <= most_for_exact) counts = counts_of_sums(counts, counts_of_inversions(side.size()));
  }
  // It goes in steps of 2.
  if (count > most_for_exact) return normal_p(static_cast<double>(difference) / 2, variance / 4);
  return exact_p(counts, (pairs - std::abs(difference)) / 2);  // that fall, or that rise
}

double alike_neighbours_p(std::span<const std::vector<double>> sides) {
  double distance = 0, variance = 0;
  for (const std::vector<double>& side : sides) {
    std::vector<double> sorted = side, ranks;  // ranks less a constant, ties at their mean
    std::ranges::sort(sorted);
    for (const double value : side) {
      const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), value);
      ranks.push_back(static_cast<double>(first - sorted.begin() + last - sorted.begin()) / 2);
    }
    const auto n = static_cast<double>(side.size());
    const double all = n < 3 ? 0 : squares(ranks);
    if (all == 0) continue;
    double steps = 0;
    for (size_t i = 1; i < ranks.size(); ++i) steps += std::pow(ranks[i] - ranks[i - 1], 2);
    distance += steps / all - 2;
    variance += 4 * (n - 2) * (5 * n * n - 2 * n - 9) / (5 * n * (n + 1) * (n - 1) * (n - 1));
  }
  return variance > 0 ? cdf(boost::math::normal(), distance / std::sqrt(variance)) : 1;
}

std::optional<TwoGroups> two_groups(std::vector<double> values) {
  if (values.size() < fewest_for_groups) return std::nullopt;
  std::ranges::sort(values);
  const std::vector<double> logs = logarithms(values);
  size_t lower = 1;
  for (size_t i = 1; i < logs.size(); ++i) {
    if (logs[i] - logs[i - 1] > logs[lower] - logs[lower - 1]) lower = i;
  }
  if (lower < 2 || logs.size() - lower < 2) return std::nullopt;
  const std::span<const double> all(logs);
  const auto degrees = static_cast<double>(logs.size() - 2);
  const double spread =
      std::sqrt((squares(all.first(lower)) + squares(all.subspan(lower))) / degrees);
  const double gap = logs[lower] - logs[lower - 1];
  if (gap < (5 + 40 / (degrees * degrees)) * spread || gap == 0) return std::nullopt;
  return TwoGroups{lower, std::exp(mean(all.first(lower))), std::exp(mean(all.subspan(lower)))};
}

Shift shift_of(std::span<const double> first, std::span<const double> second, double confidence) {
  std::vector<double> a = logarithms(first), b = logarithms(second);
  std::ranges::sort(a);
  std::ranges::sort(b);
  const auto at_most = [&](double value) {
    size_t found = 0, below = 0;  // of `a`, those from which a value of `b` is too far
    for (const double of_b : b) {
      while (below < a.size() && of_b - a[below] > value) ++below;
      found += a.size() - below;
    }
    return found;
  };
  const PairValues differences{a.size() * b.size(), b.front() - a.back(), b.back() - a.front(),
                               at_most};
  const size_t m = first.size(), n = second.size();
  const double share = (1 - confidence) / 2, all = static_cast<double>(m * n);
  const size_t left_out =
      m + n <= most_for_exact
          ? sums_below(rank_sum_counts(m, n), share)
          : sums_below(all / 2, all * static_cast<double>(m + n + 1) / 12, share);
  return with_bounds(differences, left_out);
}

Shift shift_of_pairs(std::span<const double> differences, double confidence) {
  std::vector<double> sorted(differences.begin(), differences.end());
  std::ranges::sort(sorted);
  const auto at_most = [&](double value) {
    size_t found = 0, end = sorted.size();  // of those whose mean with this one is at most so large
    for (size_t i = 0; i < sorted.size(); ++i) {
      while (end > i && (sorted[i] + sorted[end - 1]) / 2 > value) --end;
      if (end <= i) break;
      found += end - i;
    }
    return found;
  };
  const PairValues means{sorted.size() * (sorted.size() + 1) / 2, sorted.front(), sorted.back(),
                         at_most};
  const size_t m = differences.size();
  const double share = (1 - confidence) / 2, all = static_cast<double>(m * (m + 1)) / 2;
  const size_t left_out =
      m <= most_for_exact ? sums_below(signed_rank_counts(m), share)
                          : sums_below(all / 2, all * static_cast<double>(2 * m + 1) / 12, share);
  return with_bounds(means, left_out);
}

}  // namespace nearmetal
