#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

using Samples = std::vector<double>;

TEST(Outliers, AreNamedFromFourRunsOn) {
  EXPECT_EQ(outliers(Samples{1000, 1001, 999, 800}), (std::vector<bool>{0, 0, 0, 1}));
  EXPECT_EQ(outliers(Samples{1000, 1001, 800}), std::vector<bool>(3, false)) << "too few";
  EXPECT_EQ(outliers(Samples{1000, 1001, 999, 994}), std::vector<bool>(4, false));
  Samples many = {100, 101, 99, 100.5, 99.5, 100.2, 99.8, 100.7, 80, 80};
  EXPECT_EQ(outliers(many), (std::vector<bool>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1}))
      << "which hide each other from the mean";
  EXPECT_EQ(outliers(Samples(12, 100.0)), std::vector<bool>(12, false)) << "no spread";
  Samples nearly_equal(12, 100.0);
  nearly_equal[3] = 100.001;
  EXPECT_EQ(outliers(nearly_equal), std::vector<bool>(12, false)) << "no spread to judge by";
  EXPECT_TRUE(outliers({}).empty());
}

// What is named where nothing is unlike.
TEST(Outliers, AndGroupsAreSeldomSeenInIndependentRuns) {
  std::mt19937_64 engine(35);
  std::normal_distribution<double> noise;
  for (const int runs : {4, 5, 6, 8}) {
    constexpr int count = 2000;
    int with_outlier = 0, with_groups = 0;
    for (int i = 0; i < count; ++i) {
      Samples values;
      while (std::ssize(values) < runs) values.push_back(1000 * std::exp(.01 * noise(engine)));
      const std::vector<bool> found = outliers(values);
      with_outlier += std::ranges::count(found, true) > 0;
      with_groups += two_groups(values).has_value();
    }
    EXPECT_LT(with_outlier, .02 * count) << runs;
    EXPECT_GT(with_outlier, .002 * count) << runs << ": the test is not idle";
    EXPECT_LT(with_groups, .025 * count) << runs;
  }
}

// By Python: scipy.stats.kendalltau(method="exact"), and all orders counted for two sides.
TEST(Trend, IsSeenInTheOrderOfRuns) {
  const auto p = [](const std::vector<Samples>& sides) { return trend_p(sides); };
  EXPECT_NEAR(p({{5, 4, 3, 2, 1}}), 2 / 120., 1e-12);
  EXPECT_NEAR(p({{1, 3, 2, 4, 5}}), 10 / 120., 1e-12);
  EXPECT_NEAR(p({{3, 2, 1}, {6, 5, 4}}), 2 / 36., 1e-12);
  EXPECT_NEAR(p({{3, 2, 1}, {4, 5, 6}}), 1, 1e-12) << "they go apart";
  EXPECT_NEAR(p({{7, 7, 7, 7}}), 1, 1e-12);
  Samples long_rise(80);
  for (int i = 0; i < 80; ++i) long_rise[i] = i % 40;
  EXPECT_LT(p({long_rise}), 1e-4);
}

// Against all orders of 7 runs, and of 80 values by SciPy's norm.cdf of Bartels' formula.
TEST(AlikeNeighbours, AreSeenInTheOrderOfRuns) {
  const auto p = [](const std::vector<Samples>& sides) { return alike_neighbours_p(sides); };
  Samples order = {1, 2, 3, 4, 5, 6, 7};
  const Samples seen[] = {{1, 2, 4, 3, 5, 6, 7}, {2, 1, 3, 5, 7, 6, 4}, {1, 7, 2, 6, 3, 5, 4}};
  double as_low[3] = {}, orders = 0;
  do {
    ++orders;
    for (int i = 0; i < 3; ++i) as_low[i] += p({order}) <= p({seen[i]}) + 1e-12;
  } while (std::ranges::next_permutation(order).found);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(p({seen[i]}), as_low[i] / orders, .02) << i;
  Samples waves(80);
  for (int i = 0; i < 80; ++i) waves[i] = std::sin(.3 * i);
  EXPECT_LT(p({waves}), 1e-6);
  EXPECT_LT(p({seen[0], seen[0]}), p({seen[0]})) << "two sides tell more";
  EXPECT_EQ(p({{7, 7, 7, 7}, {1, 2}}), 1) << "nothing to be seen";
}

TEST(TwoGroups, AreApartByFarMoreThanTheySpread) {
  const auto found = two_groups({551, 500, 552, 550, 501, 551});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->lower, 2u);
  EXPECT_NEAR(found->of_lower, 500.5, .01);
  EXPECT_NEAR(found->of_upper, 551, .01);
  EXPECT_FALSE(two_groups({500, 501, 502, 503, 551})) << "one run is no group";
  EXPECT_FALSE(two_groups({500, 510, 540, 550})) << "they spread as much";
  EXPECT_FALSE(two_groups({500, 500, 500, 500}));
}

// By R: wilcox.test(second, first, conf.int = TRUE, conf.level = 0.9), on logarithms.
TEST(Shift, IsTheMedianOfDifferences) {
  const Samples first = {std::exp(1.0), std::exp(2.0), std::exp(3.5)};
  const Samples second = {std::exp(2.1), std::exp(4.3), std::exp(4.4)};
  const Shift found = shift_of(first, second, .9);
  EXPECT_NEAR(found.value, 1.1, 1e-12);
  ASSERT_TRUE(found.interval);
  EXPECT_NEAR(found.interval->lower, -1.4, 1e-12) << "1 of 20 ways lies beyond";
  EXPECT_NEAR(found.interval->upper, 3.4, 1e-12);
  EXPECT_FALSE(shift_of(first, second, .95).interval);
  Samples many, more;
  for (int i = 0; i < 40; ++i) {
    many.push_back(std::exp(i));
    more.push_back(std::exp(i + 3));
  }
  const Shift large = shift_of(many, more, .9);
  EXPECT_NEAR(large.value, 3, 1e-12);
  EXPECT_NEAR(large.interval->lower, -2, 1e-12) << "qwilcox(.05, 40, 40) is 629";
}

// Logarithms of 8 and more are not resolved to 1e-15.
TEST(Shift, OfAProcessorBesideGpusEnds) {
  const Shift found = shift_of(Samples{1.9, 2.0, 2.1}, Samples{9000, 9100, 9200}, .9);
  EXPECT_NEAR(std::exp(found.value), 4550, 1e-6);
  EXPECT_NEAR(std::exp(found.interval->upper), 9200 / 1.9, 1e-6);
}

TEST(Shift, OfPairsIsTheMedianOfTheirMeans) {
  const Samples differences = {1, 2, 3, 4, 9};
  const Shift found = shift_of_pairs(differences, .9);
  EXPECT_NEAR(found.value, 3, 1e-12);
  EXPECT_NEAR(found.interval->lower, 1, 1e-12) << "1 of 32 ways";
  EXPECT_NEAR(found.interval->upper, 9, 1e-12);
}

}  // namespace
}  // namespace nearmetal
