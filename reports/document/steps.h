// The steps of ranks: each of them, or bins where they are too many to list.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

#include "reports/document/types.h"

namespace nearmetal {

/// The most steps that a rank lists, and all ranks and runs of a report, whose text stays well
/// below what is read.
inline constexpr int64_t most_listed_steps = 100'000;
inline constexpr int64_t most_listed_steps_of_report = 5'000'000;

/// Puts bins in place of the lists of ranks that took more steps than may be listed: first of the
/// longest, until the rest fit. There are about 1,000 of a rank, of which none reaches from the
/// warm-up into the window. `parts`: how many reports of like size are to be merged with it.
void bin_long_lists(Report& report, int64_t parts = 1);

/// The number of steps that the rank took, those of its warm-up included.
int64_t steps_taken(const Rank& rank);

/// Step times of a rank in the timed window, which the run has; empty where they are not listed.
/// Each of several jobs has a window of its own, which old reports do not show.
std::span<const double> window_steps(const Run& run, size_t rank);
/// The same of bins; empty where steps are listed.
std::span<const Bin> window_bins(const Run& run, size_t rank);

/// The least and the largest that a quantile of what the bins hold can be.
std::pair<double, double> quantile_range(std::span<const Bin> bins, double share);

struct TimeSpan {
  double begin = -INFINITY;  // Unix time, seconds
  double end = INFINITY;
};

// Old reports have the first step of the window for each job alone: that of its first rank.

/// Cuts a time to that in which these ranks of a job were all in their windows. Empty where its end
/// is not behind its begin.
TimeSpan within_windows(std::span<const Rank> ranks, int64_t first_step, TimeSpan time);

/// Steps of the ranks' windows in a time. Those that it cuts count by their share.
double steps_within(std::span<const Rank> ranks, int64_t first_step, const TimeSpan& time);

}  // namespace nearmetal
