// Statistics of samples: pure functions.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/value.h"

namespace nearmetal {

// All of them throw std::invalid_argument for no samples.

double mean(std::span<const double> samples);

/// The mean of what is compared by ratios, such as speeds, all above 0.
double geometric_mean(std::span<const double> samples);

/// Fairness by Jain, (sum x)^2 / (n sum x^2): 1 is even.
double jain_fairness(std::span<const double> samples);

/// Unbiased; of at least 2 samples.
double variance(std::span<const double> samples);

/// The variance within groups that vary alike, each around its own mean.
struct PooledVariance {
  double sum = 0;  // of squares
  double degrees_of_freedom = 0;
  void add(std::span<const double> group);
  double value() const;  // 0 where no group has 2 samples
};

/// Linear interpolation between order statistics: type 7 of Hyndman and Fan, "Sample Quantiles in
/// Statistical Packages", 1996; the default of R and NumPy. `share` lies within 0 and 1.
double quantile(std::span<const double> samples, double share);
double median(std::span<const double> samples);

/// 1.4826 x the median absolute deviation from the median: the standard deviation where samples are
/// normal, and hardly moved by outliers.
double robust_deviation(std::span<const double> samples);

/// Least-squares change over the whole series, last value of the line minus first, relative to the
/// mean. None for fewer than 2 samples or a mean of 0.
std::optional<double> relative_drift(std::span<const double> samples);

/// The same of the logarithms, as last / first - 1: however steep, never below -1. Of
/// samples above 0.
std::optional<double> relative_change(std::span<const double> samples);

/// Correlation of neighbours, the estimator of Box and Jenkins, within -1 and 1. None for fewer
/// than 3 samples or when all are equal.
std::optional<double> lag1_autocorrelation(std::span<const double> samples);

/// Variance of the mean, by batch means (Law and Kelton, "Simulation Modeling and Analysis"):
/// neighbouring steps are not independent, so that batches grow until the means of neighbouring
/// batches no longer correlate (below 0.1), or only 10 batches are left. Where these still
/// correlate it is too small; it is at least that of a first-order autoregression with the
/// correlation of neighbouring samples, whose bias in few samples is taken off (Marriott and Pope,
/// "Bias in the Estimation of Autocorrelations", 1954). None where the samples are worth fewer than
/// 10 independent ones, as their correlation is hardly known then, or when all are equal.
std::optional<double> variance_of_mean(std::span<const double> samples);

// Runs that are unlike the others, and tests and estimates that these hardly move.

/// Whether each value, of 4 or more, lies further from the mean of the others than chance explains:
/// by Student's t of its deleted residual on the logarithms with p below 0.01 over all
/// (Bonferroni), or, as several hide each other there, from 10 values on beyond 3.5 modified
/// standard deviations from the median (Iglewicz and Hoaglin, 1993). Worth a look, no reason to
/// leave it out.
std::vector<bool> outliers(std::span<const double> values);

/// Two-sided p of the rank-sum test of Mann and Whitney, ties at their mean rank. Exact, from all
/// ways to deal the ranks out, up to 60 values in all; beyond by the normal approximation with
/// corrections for ties and continuity. Depends on no distribution, but cannot fall below 0.05
/// for fewer than 4 values a side. Throws std::invalid_argument for no values.
double mann_whitney_p(std::span<const double> first, std::span<const double> second);

/// Two-sided p of the signed-rank test of Wilcoxon, of the differences of pairs: ranks of their
/// sizes, ties at their mean rank, without those that are 0. Exact up to 60 of them, beyond by the
/// normal approximation. Cannot fall below 0.05 for fewer than 6 pairs. 1 where all are 0. Throws
/// std::invalid_argument for no differences.
double wilcoxon_p(std::span<const double> differences);

/// Two-sided p of "in no side later values are rather lower, or rather higher", of sides in the
/// order of their runs: Kendall's S, summed over the sides; exact up to 60 values in all.
double trend_p(std::span<const std::vector<double>> sides);

/// One-sided p of "in no side are neighbours rather alike", by von Neumann's ratio of ranks
/// (Bartels, "The Rank Version of von Neumann's Ratio Test for Randomness", 1982), summed over the
/// sides; by its normal approximation.
double alike_neighbours_p(std::span<const std::vector<double>> sides);

/// Two parts of values, ascending: so many belong to the lower one.
struct TwoGroups {
  size_t lower = 0;
  double of_lower = 0, of_upper = 0;  // geometric means
};
/// The values fall into two groups of at least 2 where their largest gap, on logarithms, is at
/// least 5 + 40 / (n - 2)^2 times the spread within both parts: about 1 % of samples that are
/// normal. None of fewer than 4.
std::optional<TwoGroups> two_groups(std::vector<double> values);

/// The median of all differences of logarithms, second - first (Hodges and Lehmann), with the
/// interval of this confidence that the rank-sum test gives; of pairs, the median of the means of
/// any two of their differences, by the signed-rank test. Exact, as `mann_whitney_p`. Unknown where
/// so few values give no such interval.
struct Shift {
  double value = 0;
  Maybe<Interval> interval;
};
Shift shift_of(std::span<const double> first, std::span<const double> second, double confidence);
Shift shift_of_pairs(std::span<const double> differences, double confidence);

}  // namespace nearmetal
