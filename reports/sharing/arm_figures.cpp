#include "reports/sharing/arm_figures.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "reports/sharing/given_shares.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// Over the ranks of a run, beginning with 0; mean over the runs; unknown where a rank of a run is.
template <class ValueOf, class Combine>
Maybe<double> over_ranks(const RunArm& arm, const ValueOf& value_of, const Combine& combine) {
  std::vector<double> of_runs;
  for (const Run* run : timed_runs(arm)) {
    double of_run = 0;
    for (const Rank& rank : run->ranks) {
      Maybe<double> value = value_of(rank);
      if (!value) return value;
      of_run = combine(of_run, *value);
    }
    of_runs.push_back(of_run);
  }
  return mean(of_runs);
}

template <class ValueOf>
Maybe<double> worst_of_ranks(const RunArm& arm, const ValueOf& value_of) {
  return over_ranks(arm, value_of, [](double a, double b) { return std::max(a, b); });
}

Maybe<double> monitored(const Rank& rank, const char* name, double MonitoredSeries::*figure) {
  if (!rank.monitoring) return Unknown{"not monitored"};
  const MonitoredSeries* series = series_named(*rank.monitoring, name);
  return series == nullptr ? Maybe<double>(Unknown{"not told here"})
                           : Maybe<double>(series->*figure);
}

Maybe<double> memory_bytes(const Rank& rank) {
  return monitored(rank, "memory_used_bytes", &MonitoredSeries::maximum);
}

Maybe<double> watts(const Rank& rank) {
  return monitored(rank, "power_watts", &MonitoredSeries::mean);
}

// Mean over the runs of what their jobs show.
Maybe<double> of_jobs(const RunArm& arm,
                      const std::function<Maybe<double>(const Run& run)>& value_of) {
  std::vector<double> values;
  for (const Run* run : timed_runs(arm)) {
    if (run->jobs.empty()) return Unknown{"one job"};
    Maybe<double> value = value_of(*run);
    if (!value) return value;
    values.push_back(*value);
  }
  return mean(values);
}

JobSpeeds slowest_and_fastest(const Run& run) {
  const auto [slowest, fastest] = std::minmax_element(
      run.jobs.begin(), run.jobs.end(),
      [](const ConcurrentJob& a, const ConcurrentJob& b) { return a.throughput < b.throughput; });
  return {slowest->throughput, fastest->throughput};
}

Maybe<double> worst_of_best_in(const Run& run) {
  const auto [slowest, fastest] = slowest_and_fastest(run);
  return slowest / fastest;
}

// As far as the report tells: MIG devices of one GPU have its address on the PCI bus.
size_t gpus_of(const RunSet& set, const Run& run) {
  std::set<std::pair<std::string, std::string>> gpus;
  for (const Rank& rank : run.ranks) {
    const Gpu* gpu = gpu_of(set, rank);
    if (gpu == nullptr || !gpu->pci_id) continue;
    const auto environment = static_cast<size_t>(rank.environment);
    gpus.emplace(set.environments[environment].host_name, *gpu->pci_id);
  }
  return gpus.size();
}

}  // namespace

std::vector<const Run*> timed_runs(const RunArm& arm) {
  std::vector<const Run*> runs;
  for (const SetRun& run : arm.runs) {
    const Maybe<double>& value = run.run.throughput;
    if (run.run.status == Status::complete && value) runs.push_back(&run.run);
  }
  return runs;
}

Maybe<double> worst_p99_seconds(const RunArm& arm) {
  return worst_of_ranks(arm, [](const Rank& rank) -> Maybe<double> {
    if (!rank.step_time) return Unknown{rank.step_time.reason};
    return rank.step_time->p99_seconds;
  });
}

Maybe<double> fairness_of(const RunArm& arm) {
  return of_jobs(arm, [](const Run& run) {
    return run.jain_fairness ? Maybe<double>(*run.jain_fairness)
                             : Maybe<double>(Unknown{"the report does not tell"});
  });
}

Maybe<JobSpeeds> job_speeds_of(const RunArm& arm) {
  std::vector<double> slowest, fastest;
  for (const Run* run : timed_runs(arm)) {
    if (run->jobs.empty()) return Unknown{"one job"};
    const auto [worst, best] = slowest_and_fastest(*run);
    slowest.push_back(worst);
    fastest.push_back(best);
  }
  return JobSpeeds{geometric_mean(slowest), geometric_mean(fastest)};
}

Maybe<double> worst_of_best(const RunArm& arm) { return of_jobs(arm, worst_of_best_in); }

// With MIG and vGPUs each rank tells of its own device; else each tells of all.
Maybe<double> memory_of(const RunArm& arm) {
  const bool own_devices =
      arm.share->way == SharingMode::mig || arm.share->way == SharingMode::vgpu;
  if (!own_devices) return worst_of_ranks(arm, memory_bytes);
  if (!arm.share->neighbours.empty()) {
    return Unknown{"its neighbours' devices are not looked at"};
  }
  return over_ranks(arm, memory_bytes, std::plus<>());
}

// One GPU for each job; of several the power of one is not that of all. The jobs of a GPU that MIG
// divides all see its power, which is not divided.
Maybe<double> power_of(const RunSet& set, const RunArm& arm) {
  if (arm.share->way == SharingMode::vgpu && arm.share->jobs > 1)
    return Unknown{"the jobs are on several VMs"};
  for (const Run* run : timed_runs(arm)) {
    if (run->world_size > arm.share->jobs) return Unknown{"a job has several GPUs"};
    if (gpus_of(set, *run) > 1) return Unknown{"the jobs are on several GPUs"};
  }
  return worst_of_ranks(arm, watts);
}

Maybe<double> samples_per_joule(const RunSet& set, const RunArm& arm, double throughput) {
  if (!arm.share->neighbours.empty()) return Unknown{"its neighbours take power, too"};
  Maybe<double> power = power_of(set, arm);
  if (!power) return power;
  return *power > 0 ? Maybe<double>(throughput / *power) : Maybe<double>(Unknown{"not monitored"});
}

}  // namespace nearmetal
