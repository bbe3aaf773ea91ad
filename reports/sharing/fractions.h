// The cost of sharing a GPU: arms of a sweep compared with each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/document/run_config.h"

namespace nearmetal {

/// One of the unlike jobs of an arm, beside itself alone on the whole GPU.
struct JobPoint {
  std::string task;  // in words: "resnet50 training"
  std::string work;  // with precision and batch
  const char* rate = "";
  Maybe<Estimate> throughput{};
  Maybe<double> alone{};       // throughput
  Maybe<Estimate> of_alone{};  // throughput / that
};

/// One arm, over its complete runs; means of speeds are geometric. Where the shares are even, the
/// ratios of throughputs are those of the times in which jobs of the same work are all done. It is
/// compared with arms that did the same work on the same hardware. The work of unlike jobs does not
/// add: in place of throughputs stand sums of normalised progress.
struct FractionPoint {
  std::string arm;
  SharingMode mode = SharingMode::alone;
  int64_t jobs = 1;
  int64_t runs = 0;
  Maybe<Estimate> throughput{};         // of all jobs
  Maybe<Estimate> of_serial{};          // throughput / that of the serial arm with as many jobs
  Maybe<Estimate> of_timeslice{};       // / that of the arm in time slices
  Maybe<Estimate> weighted_speedup{};   // sum over jobs: speed / speed alone on the whole GPU
  std::vector<JobPoint> unlike_jobs{};  // empty: they do the same
  // How many times as long a job takes (the geometric mean over jobs) as alone on the whole GPU,
  // and as alone on the same share of it, which is what its neighbours cost.
  Maybe<Estimate> slowdown{};
  Maybe<Estimate> interference{};
  Maybe<double> p99_inflation{};  // of step times: p99 of the worst job / that of one alone
  // By the jobs' speeds, for unlike jobs by their progress:
  Maybe<Estimate> fairness{};       // by Jain: 1 is even
  Maybe<Estimate> worst_of_best{};  // slowest job / fastest, by their means over the runs
  Maybe<double> memory_bytes{};     // used of the GPU, at most
  Maybe<double> power_watts{};      // of the GPU
  Maybe<double> samples_per_joule{};
  Maybe<Interval> job_speeds{};  // of the slowest job and of the fastest
  std::string given;             // what a job has of its GPU, in words
};

bool shares_a_device(const RunSet& set);

/// The words for what the jobs share: CPUs if all runs were on them.
const DeviceWords& device_words_of(const RunSet& set);

/// The points in the order of the set; arms that share nothing or have no complete run are left
/// out. Each is compared with those of the same batch alone, or of `any_batch`. `confidence`: of
/// the intervals of `of_serial` and `of_timeslice`.
std::vector<FractionPoint> fractions_of(const RunSet& set, bool any_batch = false,
                                        double confidence = side_confidence);

/// Of like jobs the arm with the fastest batch of each sharing mode; none where no mode has a
/// choice.
RunSet with_best_batches(const RunSet& set);

}  // namespace nearmetal
