// What the runs of an arm whose jobs share a GPU show of it, beside their speeds.
#pragma once

#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// Those that are complete and tell how fast they were.
std::vector<const Run*> timed_runs(const RunArm& arm);

// Means over these, of an arm with a share:

/// Of step times, of the worst rank.
Maybe<double> worst_p99_seconds(const RunArm& arm);

/// Of the jobs' speeds, by Jain: 1 is even.
Maybe<double> fairness_of(const RunArm& arm);

/// Images/s of one job; geometric means over the runs.
struct JobSpeeds {
  double slowest = 0;
  double fastest = 0;
};
Maybe<JobSpeeds> job_speeds_of(const RunArm& arm);

/// Slowest job / fastest.
Maybe<double> worst_of_best(const RunArm& arm);

/// Used of the GPU, at most; of MIG devices and vGPUs the sum.
Maybe<double> memory_of(const RunArm& arm);

/// Watts of the GPU that all jobs have, neighbours included.
Maybe<double> power_of(const RunSet& set, const RunArm& arm);

Maybe<double> samples_per_joule(const RunSet& set, const RunArm& arm, double throughput);

}  // namespace nearmetal
