#include "reports/statistics/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

namespace nearmetal {
namespace {

using Samples = std::vector<double>;

TEST(Statistics, MeanAndMedian) {
  EXPECT_DOUBLE_EQ(mean(Samples{1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(median(Samples{5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(median(Samples{4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median(Samples{7}), 7);
}

// R: quantile(c(15, 20, 35, 40, 50), c(0.05, 0.3, 0.4, 0.95), type = 7)
TEST(Statistics, PooledVarianceIsThatWithinGroups) {
  PooledVariance pooled;
  pooled.add(Samples{7});
  EXPECT_EQ(pooled.value(), 0) << "one value tells nothing";
  pooled.add(Samples{1, 3});
  pooled.add(Samples{100, 101, 102, 103});
  EXPECT_EQ(pooled.degrees_of_freedom, 4);
  EXPECT_DOUBLE_EQ(pooled.value(), (2 + 5) / 4.0);
}

TEST(Statistics, QuantilesInterpolateAsInR) {
  const Samples samples{50, 15, 40, 20, 35};
  EXPECT_DOUBLE_EQ(quantile(samples, 0.05), 16);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.3), 23);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.4), 29);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.95), 48);
  EXPECT_DOUBLE_EQ(quantile(samples, 0), 15);
  EXPECT_DOUBLE_EQ(quantile(samples, 1), 50);
}

TEST(Statistics, NoSamplesAndBadSharesAreRefused) {
  EXPECT_THROW(mean(Samples{}), std::invalid_argument);
  EXPECT_THROW(median(Samples{}), std::invalid_argument);
  EXPECT_THROW(variance_of_mean(Samples{}), std::invalid_argument);
  EXPECT_THROW(quantile(Samples{1}, 1.5), std::invalid_argument);
  EXPECT_THROW(quantile(Samples{1}, std::nan("")), std::invalid_argument);
}

// Median 2, distances 1 1 0 0 2 4 7, their median 1.
TEST(Statistics, RobustDeviationHardlySeesOutliers) {
  EXPECT_DOUBLE_EQ(robust_deviation(Samples{1, 1, 2, 2, 4, 6, 9}), 1.4826);
  EXPECT_DOUBLE_EQ(robust_deviation(Samples{3, 3, 3}), 0);
}

TEST(Statistics, DriftIsTheChangeOfTheFittedLine) {
  EXPECT_NEAR(*relative_drift(Samples{9, 10, 11}), 0.2, 1e-15);  // slope 1 x 2 steps / 10
  EXPECT_NEAR(*relative_drift(Samples{11, 10, 9}), -0.2, 1e-15);
  EXPECT_NEAR(*relative_drift(Samples{4, 4, 4, 4}), 0, 1e-15);
  // x -1.5 .. 1.5, y 1 3 2 4: slope 4 / 5, times 3, over the mean of 2.5
  EXPECT_NEAR(*relative_drift(Samples{1, 3, 2, 4}), 0.8 * 3 / 2.5, 1e-15);
  EXPECT_FALSE(relative_drift(Samples{4}));
  EXPECT_NEAR(*relative_change(Samples{1, 2, 4}), 3, 1e-12);
  EXPECT_NEAR(*relative_change(Samples{4, 2, 1}), -0.75, 1e-12);
  EXPECT_FALSE(relative_change(Samples{4}));
  const Samples steep{30, 9, 3, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_LT(*relative_drift(steep), -1);
  EXPECT_GT(*relative_change(steep), -1);
}

// Deviations from 2.5: -1.5 -0.5 0.5 1.5; products 0.75 - 0.25 + 0.75 = 1.25 over 5.
TEST(Statistics, Lag1Autocorrelation) {
  EXPECT_DOUBLE_EQ(*lag1_autocorrelation(Samples{1, 2, 3, 4}), 0.25);
  EXPECT_DOUBLE_EQ(*lag1_autocorrelation(Samples{1, -1, 1, -1}), -0.75);
  EXPECT_FALSE(lag1_autocorrelation(Samples{2, 2, 2}));
  EXPECT_FALSE(lag1_autocorrelation(Samples{1, 2}));
}

Samples autoregressive(double coefficient, size_t count, uint64_t seed = 7) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> noise;
  Samples samples{noise(engine) / std::sqrt(1 - coefficient * coefficient)};
  for (size_t i = 1; i < count; ++i) {
    samples.push_back(coefficient * samples.back() + noise(engine));
  }
  for (double& sample : samples) sample += 100;
  return samples;
}

TEST(Statistics, IndependentSamplesKeepTheirNumber) {
  const Samples samples = autoregressive(0, 4000);
  const auto squared_error = variance_of_mean(samples);
  ASSERT_TRUE(squared_error);
  EXPECT_NEAR(std::sqrt(*squared_error), 1 / std::sqrt(4000.0), 0.05 / std::sqrt(4000.0));
  EXPECT_NEAR(variance(samples) / *squared_error, 4000, 1);
}

// AR(1) with 0.9: worth (1 - 0.9) / (1 + 0.9) of the number of samples.
TEST(Statistics, CorrelatedSamplesCountForLess) {
  const size_t count = 40000;
  const Samples samples = autoregressive(0.9, count);
  const auto squared_error = variance_of_mean(samples);
  ASSERT_TRUE(squared_error);
  EXPECT_NEAR(variance(samples) / *squared_error / static_cast<double>(count), 0.1 / 1.9, 0.025);
}

// The share of series of 60 samples that are given an error, and the share of these whose true mean
// lies within 1.96 times that error.
std::pair<double, double> told_and_covered(double coefficient) {
  constexpr int series = 1000;
  double told = 0, covered = 0;
  for (uint64_t seed = 1; seed <= series; ++seed) {
    const Samples samples = autoregressive(coefficient, 60, seed);
    const auto squared_error = variance_of_mean(samples);
    if (!squared_error) continue;
    ++told;
    if (std::abs(mean(samples) - 100) < 1.96 * std::sqrt(*squared_error)) ++covered;
  }
  return {told / series, covered / told};
}

TEST(Statistics, TheErrorOfAShortSeriesHoldsOrIsUnknown) {
  for (const double coefficient : {0.0, 0.3, 0.5}) {
    const auto [told, covered] = told_and_covered(coefficient);
    EXPECT_GT(told, 0.95) << coefficient;
    EXPECT_GT(covered, 0.91) << coefficient;
  }
  const auto [told, covered] = told_and_covered(0.9);  // worth 3 independent ones
  EXPECT_LT(told, 0.08);
}

TEST(Statistics, TooFewOrEqualSamplesHaveNoError) {
  EXPECT_FALSE(variance_of_mean(Samples{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_FALSE(variance_of_mean(Samples(100, 3.0)));
}

}  // namespace
}  // namespace nearmetal
