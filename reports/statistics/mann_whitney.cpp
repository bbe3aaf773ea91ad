#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <stdexcept>

#include "reports/statistics/inference.h"

namespace nearmetal {
namespace {

constexpr size_t most_for_exact = 60;  // of both sides; some milliseconds of counting

struct Ranks {
  std::vector<int64_t> doubled;  // twice the mean rank of each value, in ascending order
  int64_t doubled_sum_of_first = 0;
  double ties = 0;  // sum of t^3 - t over groups of t equal values
};

Ranks ranks_of(std::span<const double> first, std::span<const double> second) {
  struct Value {
    double value;
    bool is_first;
  };
  std::vector<Value> values;
  for (const double value : first) values.push_back({value, true});
  for (const double value : second) values.push_back({value, false});
  std::sort(values.begin(), values.end(),
            [](const Value& a, const Value& b) { return a.value < b.value; });
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
std::vector<double> ways_by_sum(const std::vector<int64_t>& ranks, size_t chosen) {
  int64_t total = 0;
  for (const int64_t rank : ranks) total += rank;
  std::vector<std::vector<double>> ways(chosen + 1, std::vector<double>(total + 1));
  ways[0][0] = 1;
  for (const int64_t rank : ranks) {
    for (size_t count = chosen; count > 0; --count) {
      for (int64_t sum = total; sum >= rank; --sum) ways[count][sum] += ways[count - 1][sum - rank];
    }
  }
  return ways[chosen];
}

double exact_p(const Ranks& ranks, size_t size_of_first) {
  const std::vector<double> ways = ways_by_sum(ranks.doubled, size_of_first);
  double all = 0;
  double below = 0;  // at or below what was seen
  double above = 0;
  for (size_t sum = 0; sum < ways.size(); ++sum) {
    all += ways[sum];
    if (static_cast<int64_t>(sum) <= ranks.doubled_sum_of_first) below += ways[sum];
    if (static_cast<int64_t>(sum) >= ranks.doubled_sum_of_first) above += ways[sum];
  }
  return std::min(1.0, 2 * std::min(below, above) / all);
}

double approximate_p(const Ranks& ranks, double m, double n) {
  const double all = m + n;
  const double u = static_cast<double>(ranks.doubled_sum_of_first) / 2 - m * (m + 1) / 2;
  const double variance = m * n / 12 * (all + 1 - ranks.ties / (all * (all - 1)));
  if (variance <= 0) return 1;  // all values are equal
  const double distance = std::max(0.0, std::abs(u - m * n / 2) - 0.5);
  return std::min(1.0, 2 * cdf(complement(boost::math::normal(), distance / std::sqrt(variance))));
}

}  // namespace

double mann_whitney_p(std::span<const double> first, std::span<const double> second) {
  if (first.empty() || second.empty()) throw std::invalid_argument("a rank test of no values");
  const Ranks ranks = ranks_of(first, second);
  if (first.size() + second.size() <= most_for_exact) return exact_p(ranks, first.size());
  return approximate_p(ranks, static_cast<double>(first.size()),
                       static_cast<double>(second.size()));
}

}  // namespace nearmetal
