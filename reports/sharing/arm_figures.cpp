#include "reports/sharing/arm_figures.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/text_table.h"
#include "reports/document/metric.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// Over the ranks of a run, beginning with 0; mean over the runs; unknown where a rank of a run is.
template <class ValueOf, class Combine>
Maybe<double> over_ranks(const RunArm& arm, const ValueOf& value_of, const Combine& combine) {
  std::vector<double> of_runs;
  for (const SetRun* run : timed_runs(arm)) {
    double of_run = 0;
    for (const Rank& rank : run->run.ranks) {
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

Maybe<double> watts(const Rank& rank) { return monitored(rank, "power_watts"); }

Maybe<double> memory_bytes(const Rank& rank) {
  return monitored(rank, "memory_used_bytes", &MonitoredSeries::maximum);
}

// The GPUs as far as the report shows: MIG devices of one GPU have its address on the PCI bus.
int64_t gpus_of(const RunSet& set, const Run& run) {
  std::set<std::pair<std::string, std::string>> gpus;
  for (const Rank& rank : run.ranks) {
    const Gpu* gpu = gpu_of(set, rank);
    if (gpu == nullptr || !gpu->pci_id) continue;
    const auto environment = static_cast<size_t>(rank.environment);
    gpus.emplace(operating_system_of(set.environments[environment]), *gpu->pci_id);
  }
  return std::ssize(gpus);
}

// The first rank of each job.
std::vector<const Rank*> first_ranks(const Run& run) {
  std::vector<const Rank*> ranks;
  size_t first = 0;
  for (const ConcurrentJob& job : run.jobs) {
    if (first < run.ranks.size()) ranks.push_back(&run.ranks[first]);
    first += static_cast<size_t>(job.ranks);
  }
  if (run.jobs.empty() && !run.ranks.empty()) ranks.push_back(&run.ranks.front());
  return ranks;
}

std::string share_limits_text(const Gpu& gpu, const ArmShare& share, size_t job) {
  std::vector<std::string> texts;
  // Parts are whole groups of multiprocessors, which the rank has counted.
  if (share.mode != SharingMode::sm && job < share.threads_percent.size()) {
    texts.push_back(std::to_string(share.threads_percent[job]) + " % of the SMs");
  } else if (gpu.multiprocessors) {
    texts.push_back(std::to_string(*gpu.multiprocessors) + " SMs");
  }
  const bool limited = job < share.memory_gib.size() && share.memory_gib[job] > 0;
  const Maybe<int64_t> bytes = limited ? share.memory_gib[job] << 30 : gpu.memory_bytes;
  if (bytes) texts.push_back(significant(1e-9 * static_cast<double>(*bytes), 3) + " GB");
  return texts.empty() ? "-" : joined(texts);
}

std::string known(const Maybe<std::string>& value) {
  return value ? *value : "not known here (" + value.reason + ")";
}

}  // namespace

std::vector<double> speeds_of_jobs(const Run& run) {
  if (run.jobs.empty()) return {*run.throughput};
  return transformed(run.jobs, &ConcurrentJob::throughput);
}

SomeRuns timed_runs(const RunArm& arm) {
  return runs_where(arm, [](const SetRun& run) {
    return run.run.status == Status::complete && (run.run.throughput || !run.run.jobs.empty());
  });
}

Maybe<double> worst_p99_seconds(const RunArm& arm) {
  int64_t fewest = fewest_steps_for_p99;
  for (const SetRun* run : timed_runs(arm)) {
    if (run->run.window) fewest = std::min(fewest, run->run.window->steps);
    for (const auto& job : run->run.jobs) fewest = std::min(fewest, job.steps.value_or(fewest));
  }
  if (fewest < fewest_steps_for_p99) return Unknown{"a window of few steps"};
  return worst_of_ranks(arm, [](const Rank& rank) -> Maybe<double> {
    if (!rank.step_time) return Unknown{rank.step_time.reason};
    return rank.step_time->p99_seconds;
  });
}

// With MIG and vGPUs each rank tells of its own device; else each tells of all.
Maybe<double> memory_of(const RunArm& arm) {
  if (!arm.share || !has_own_device(arm.share->mode)) return worst_of_ranks(arm, memory_bytes);
  if (!arm.share->neighbours.empty()) {
    return Unknown{"its neighbours' devices are not looked at"};
  }
  return over_ranks(arm, memory_bytes, std::plus<>());
}

// Without a share a GPU for each rank; with one a GPU for all jobs, as of several the power of one
// is not that of all. The jobs of a GPU that MIG divides all see its power, which is not divided.
Maybe<double> power_of(const RunSet& set, const RunArm& arm) {
  if (arm.share && arm.share->mode == SharingMode::vgpu && arm.share->jobs > 1)
    return Unknown{"the jobs are on several VMs"};
  for (const SetRun* run : timed_runs(arm)) {
    const int64_t gpus = gpus_of(set, run->run), ranks = run->run.world_size;
    if (!arm.share && gpus != ranks) return Unknown{"not every rank has a GPU of its own"};
    if (!arm.share) continue;
    if (ranks > arm.share->jobs) return Unknown{"a job has several GPUs"};
    if (gpus > 1) return Unknown{"the jobs are on several GPUs"};
  }
  return arm.share ? worst_of_ranks(arm, watts) : over_ranks(arm, watts, std::plus<>());
}

Maybe<double> samples_per_joule(const RunSet& set, const RunArm& arm, double throughput) {
  if (arm.share && !arm.share->neighbours.empty()) {
    return Unknown{"its neighbours take power, too"};
  }
  Maybe<double> power = power_of(set, arm);
  if (!power) return power;
  return *power > 0 ? Maybe<double>(throughput / *power) : Maybe<double>(Unknown{"not monitored"});
}

const Gpu* gpu_of(const RunSet& set, const Rank& rank) {
  if (!rank.gpu || rank.environment < 0 || rank.environment >= std::ssize(set.environments)) {
    return nullptr;
  }
  const std::vector<Gpu>& gpus = set.environments[static_cast<size_t>(rank.environment)].gpus;
  return *rank.gpu < std::ssize(gpus) ? &gpus[static_cast<size_t>(*rank.gpu)] : nullptr;
}

std::string share_limits_text(const RunSet& set, const ArmShare& share, const Run& run) {
  std::vector<std::pair<std::string, int64_t>> counts;
  size_t job = 0;
  for (const Rank* rank : first_ranks(run)) {
    const Gpu* gpu = gpu_of(set, *rank);
    if (gpu == nullptr) return "-";
    ++value_beside(share_limits_text(*gpu, share, job++), counts);
  }
  if (counts.empty()) return "-";
  if (counts.size() == 1) return counts.front().first;
  const auto counted_text = [](const auto& of_text) {
    const auto& [text, count] = of_text;
    return count == 1 ? text : std::to_string(count) + " x " + text;
  };
  return joined(transformed(counts, counted_text), "; ");
}

std::vector<std::string> share_remarks(const RunSet& set) {
  std::set<std::string> remarks;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      if (!arm.share || run.run.status != Status::complete) continue;
      for (const Rank& rank : run.run.ranks) {
        const Gpu* gpu = gpu_of(set, rank);
        if (gpu == nullptr || !gpu->vgpu_profile) continue;
        remarks.insert(printable(arm.name + ": on a vGPU " + *gpu->vgpu_profile +
                                 ", licence: " + known(gpu->vgpu_licence) +
                                 ", scheduler: " + known(gpu->vgpu_scheduler)));
      }
    }
  }
  return {remarks.begin(), remarks.end()};
}

}  // namespace nearmetal
