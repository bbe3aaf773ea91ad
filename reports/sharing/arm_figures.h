// The figures of a GPU from runs of an arm whose jobs share it, beside their speeds.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// The throughput of each job of a run, or of the only one.
std::vector<double> speeds_of_jobs(const Run& run);

/// The runs that are complete and report how fast they were, or each of their unlike jobs.
SomeRuns timed_runs(const RunArm& arm);

// Means over these; but for memory, power and energy of an arm with a share:

/// The 99th percentile of step times of the worst rank.
Maybe<double> worst_p99_seconds(const RunArm& arm);

/// Used of the GPU, at most, or of the fullest of several; of MIG devices and vGPUs the sum.
Maybe<double> memory_of(const RunArm& arm);

/// Watts of the GPU that all jobs have, neighbours included; without a share of all GPUs.
Maybe<double> power_of(const RunSet& set, const RunArm& arm);

Maybe<double> samples_per_joule(const RunSet& set, const RunArm& arm, double throughput);

/// Null: the rank computes on CPUs, or the report does not tell.
const Gpu* gpu_of(const RunSet& set, const Rank& rank);

/// The part that a job has of its GPU, at most (with MIG or a vGPU that device), by the first rank
/// of each: "16 SMs, 18.9 GB"; of unequal shares "2 x 16 SMs, 18.9 GB; 60 SMs, 75.9 GB"; "-" on
/// CPUs. `run`: a complete one of the arm.
std::string share_limits_text(const RunSet& set, const ArmShare& share, const Run& run);

/// The facts of arms on vGPUs that the figures do not show: profile, licence and scheduler.
std::vector<std::string> share_remarks(const RunSet& set);

}  // namespace nearmetal
