// Statistics of one run's samples: pure functions.
#pragma once

#include <optional>
#include <span>

namespace nearmetal {

// All of them throw std::invalid_argument for no samples.

double mean(std::span<const double> samples);

/// The mean of what is compared by ratios, such as speeds, all above 0.
double geometric_mean(std::span<const double> samples);

/// Fairness by Jain, (sum x)^2 / (n sum x^2): 1 is even.
double jain_fairness(std::span<const double> samples);

/// Unbiased; of at least 2 samples.
double variance(std::span<const double> samples);

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

}  // namespace nearmetal
