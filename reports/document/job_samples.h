// The samples of a job from those of its ranks: counted here, by all who count them.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "reports/document/types.h"

namespace nearmetal {

/// What the samples of all its ranks are of the job: the ranks of a replica of a pipeline have the
/// same ones.
double samples_of_job(const RunConfig& config, double samples_of_ranks);

struct TimeSpan {
  double begin = -INFINITY;  // Unix time, seconds
  double end = INFINITY;
};

/// Cuts a time to that in which these ranks of a job were all in their windows. Empty where its end
/// is not behind its begin.
TimeSpan within_windows(std::span<const Rank> ranks, int64_t first_step, TimeSpan time);

/// Samples of a job in a time. Steps that it cuts count by their share.
double samples_within(const RunConfig& config, std::span<const Rank> ranks, int64_t first_step,
                      const TimeSpan& time);

}  // namespace nearmetal
