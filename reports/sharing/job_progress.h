// How far jobs get beside themselves alone: what adds where their work does not.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/statistics/inference.h"

namespace nearmetal {

/// A ratio of two arms' speeds, with its interval (95 %) from the spread of both over their runs.
struct SpeedRatio {
  double value = 1;
  Maybe<Interval> interval{};
};

/// The throughput of each job of a run, or of the only one.
std::vector<double> speeds_of_jobs(const Run& run);

/// Speed of `arm` / speed of `base`, of throughputs.
SpeedRatio speed_ratio(const RunArm& arm, const RunArm& base);

/// The normalised progress of an arm's jobs: the speed of each over its speed alone.
struct JobProgress {
  std::vector<std::vector<double>> of_runs;  // by run and job
  std::vector<const RunArm*> alone;          // by job
  double part = 1;                           // of the time that each job has: in turn 1 / jobs
};

/// `alone`: for each job the arm that did its work alone on the whole GPU, or null.
Maybe<JobProgress> progress_of(const RunArm& arm, const std::vector<const RunArm*>& alone);

/// The sum over the jobs, also called weighted speedup: how many jobs' worth of work is done in the
/// time in which one is done alone.
SpeedRatio weighted_speedup(const JobProgress& progress);

/// The progress of one arm over that of another whose jobs do the same.
SpeedRatio ratio_of(const JobProgress& progress, const JobProgress& base);

/// Fairness of the progress of jobs, as means over the runs: by Jain, 1 is even; and the least over
/// the most.
double fairness_of(const JobProgress& progress);
double worst_of_best(const JobProgress& progress);

}  // namespace nearmetal
