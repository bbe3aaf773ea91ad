// What the runs of an arm whose jobs share a GPU show of it, beside their speeds.
#pragma once

#include <cstdint>
#include <string>
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

/// What a job has of its GPU, at most: with MIG or a vGPU that device.
struct GivenShare {
  Maybe<int64_t> threads_percent = Unknown{"no limit"};  // of the multiprocessors
  Maybe<int64_t> multiprocessors{};
  Maybe<int64_t> memory_bytes{};

  bool operator==(const GivenShare&) const = default;
};

/// Null: the rank computes on CPUs, or the report does not tell.
const Gpu* gpu_of(const RunSet& set, const Rank& rank);

/// By job, of its first rank; empty: on CPUs. `run`: a complete one of the arm.
std::vector<GivenShare> given_to(const RunSet& set, const ArmShare& share, const Run& run);

/// "16 SMs, 18.9 GB"; of unequal shares "2 x 16 SMs, 18.9 GB; 60 SMs, 75.9 GB".
std::string given_text(const std::vector<GivenShare>& given);

/// What the figures do not say of arms on vGPUs: profile, licence and scheduler.
std::vector<std::string> share_remarks(const RunSet& set);

}  // namespace nearmetal
