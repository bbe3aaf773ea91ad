#include "reports/sharing/job_progress.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "reports/compare/compare.h"
#include "reports/compare/comparison_row.h"
#include "reports/sharing/arm_figures.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

std::vector<double> sums(const JobProgress& progress) {
  std::vector<double> of_runs;
  for (const std::vector<double>& jobs : progress.of_runs) {
    of_runs.push_back(progress.part * std::accumulate(jobs.begin(), jobs.end(), 0.0));
  }
  return of_runs;
}

// Relative change of the sum by that of an arm alone: the share of its jobs in the sum.
std::map<const RunArm*, double> weights_of(const JobProgress& progress) {
  std::map<const RunArm*, double> weights;
  const double all = mean(sums(progress));
  const auto runs = static_cast<double>(progress.of_runs.size());
  for (const std::vector<double>& jobs : progress.of_runs) {
    for (size_t job = 0; job < jobs.size(); ++job) {
      weights[progress.alone[job]] += progress.part * jobs[job] / all / runs;
    }
  }
  return weights;
}

}  // namespace

std::vector<double> speeds_of_jobs(const Run& run) {
  std::vector<double> speeds;
  for (const ConcurrentJob& job : run.jobs) speeds.push_back(job.throughput);
  if (speeds.empty()) speeds.push_back(*run.throughput);
  return speeds;
}

SpeedRatio speed_ratio(const RunArm& arm, const RunArm& base) {
  const std::vector<double> of_arm = throughputs(arm), of_base = throughputs(base);
  const double value = geometric_mean(of_arm) / geometric_mean(of_base);
  return {value, interval_around(value, {{1, of_arm}, {-1, of_base}})};
}

Maybe<JobProgress> progress_of(const RunArm& arm, const std::vector<const RunArm*>& alone) {
  if (std::ranges::find(alone, nullptr) != alone.end()) return Unknown{"no such job ran alone"};
  if (std::ranges::find(alone, &arm) != alone.end()) return Unknown{"it is the reference"};
  JobProgress progress{.of_runs = {}, .alone = alone};
  if (arm.share->mode == SharingMode::serial)
    progress.part = 1.0 / static_cast<double>(alone.size());
  for (const Run* run : timed_runs(arm)) {
    std::vector<double> speeds = speeds_of_jobs(*run);
    if (speeds.size() != alone.size()) return Unknown{"it does not report each job"};
    for (size_t job = 0; job < speeds.size(); ++job) {
      speeds[job] /= geometric_mean(throughputs(*alone[job]));
    }
    progress.of_runs.push_back(std::move(speeds));
  }
  return progress;
}

SpeedRatio weighted_speedup(const JobProgress& progress) {
  const std::vector<double> values = sums(progress);
  WeightedSamples samples = {{1, values}};
  for (const auto& [alone, weight] : weights_of(progress)) {
    samples.emplace_back(-weight, throughputs(*alone));
  }
  const double value = geometric_mean(values);
  return {value, interval_around(value, samples)};
}

SpeedRatio ratio_of(const JobProgress& progress, const JobProgress& base) {
  const std::vector<double> values = sums(progress), of_base = sums(base);
  WeightedSamples samples = {{1, values}, {-1, of_base}};
  std::map<const RunArm*, double> weights = weights_of(base);
  for (const auto& [alone, weight] : weights_of(progress)) weights[alone] -= weight;
  for (const auto& [alone, weight] : weights) samples.emplace_back(weight, throughputs(*alone));
  const double value = geometric_mean(values) / geometric_mean(of_base);
  return {value, interval_around(value, samples)};
}

double fairness_of(const JobProgress& progress) {
  std::vector<double> of_runs;
  for (const std::vector<double>& jobs : progress.of_runs) of_runs.push_back(jain_fairness(jobs));
  return mean(of_runs);
}

double worst_of_best(const JobProgress& progress) {
  std::vector<double> of_runs;
  for (const std::vector<double>& jobs : progress.of_runs) {
    const auto [least, most] = std::ranges::minmax(jobs);
    of_runs.push_back(least / most);
  }
  return mean(of_runs);
}

}  // namespace nearmetal
