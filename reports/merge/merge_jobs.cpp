#include <algorithm>
#include <cmath>

#include "reports/document/metric.h"
#include "reports/merge/merge.h"

namespace nearmetal {
namespace {

TimeSpan common_windows(const std::vector<Report>& jobs) {
  TimeSpan common;
  for (const Report& report : jobs) {
    const Run& run = report.arms[0].runs[0];
    common = within_windows(run.ranks, run.window->first_step, common);
  }
  return common;
}

double start_of(const Report& job) {
  return job.arms[0].runs[0].ranks[0].window_start_unix_seconds.value();
}

double jain_fairness(const std::vector<ConcurrentJob>& jobs) {
  double sum = 0, squares = 0;
  for (const ConcurrentJob& job : jobs) {
    sum += job.throughput;
    squares += job.throughput * job.throughput;
  }
  return std::min(1.0, sum * sum / (static_cast<double>(jobs.size()) * squares));
}

double first_start(const std::vector<Report>& jobs) {
  double first = INFINITY;
  for (const Report& job : jobs) first = std::min(first, start_of(job));
  return first;
}

int64_t ranks_of(const Report& job) { return std::ssize(job.arms[0].runs[0].ranks); }

void fill_window(double samples, double seconds, Run& run) {
  run.window.value->samples = std::llround(samples);
  run.window.value->seconds = seconds;
  run.jain_fairness = jain_fairness(run.jobs);
  set_throughput(throughput_of(samples, seconds), run);
}

// Neither their samples add nor their speeds tell who got more; operations do add.
void separate_unlike_jobs(const std::vector<Report>& jobs, Run& run) {
  double flops_per_second = 0, samples_per_second = 0;
  run.parameters = 0;
  for (const Report& report : jobs) run.parameters += report.arms[0].runs[0].parameters;
  for (const ConcurrentJob& job : run.jobs) {
    flops_per_second += job.throughput * job.flops_per_sample.value_or(0);
    samples_per_second += job.throughput;
  }
  run.jain_fairness.reset();
  set_throughput(Unknown{unlike_work}, run);
  run.flops_per_sample = flops_per_second / samples_per_second;
  run.flops_per_second = flops_per_second;
  run.share_of_peak = Unknown{run.peak_flops_per_second.reason};
  if (run.peak_flops_per_second) run.share_of_peak = flops_per_second / *run.peak_flops_per_second;
}

void add_job(const Report& report, double samples_per_second, double first_start, Run& run) {
  const TimedWindow& window = *report.arms[0].runs[0].window;
  run.jobs.push_back({.ranks = ranks_of(report),
                      .throughput = samples_per_second,
                      .start_seconds = start_of(report) - first_start,
                      .first_step = window.first_step,
                      .steps = window.steps,
                      .sample = report.arms[0].runs[0].sample,
                      .flops_per_sample = report.arms[0].runs[0].flops_per_sample});
}

void merge_throughput(const std::vector<Report>& jobs, Run& run) {
  const TimeSpan common = common_windows(jobs);
  const double seconds = common.end - common.begin;
  if (!(seconds > 0)) {
    run.window = Unknown{"the jobs were never in their windows at the same time"};
    return fail_run(run.window.reason + ": a window was too short, or a clock jumped", run);
  }
  const double first = first_start(jobs);
  double samples = 0;
  for (const Report& report : jobs) {
    const Run& job = report.arms[0].runs[0];
    const double of_job =
        samples_within(report.invocation.config, job.ranks, job.window->first_step, common);
    samples += of_job;
    add_job(report, throughput_of(of_job, seconds), first, run);
  }
  fill_window(samples, seconds, run);
}

// Each job counts in its own window.
void merge_serial_throughput(const std::vector<Report>& jobs, Run& run) {
  const double first = first_start(jobs);
  double samples = 0, seconds = 0;
  for (const Report& report : jobs) {
    const TimedWindow& window = *report.arms[0].runs[0].window;
    samples += static_cast<double>(window.samples);
    seconds += window.seconds;
    add_job(report, throughput_of(window), first, run);
  }
  fill_window(samples, seconds, run);
}

std::string name_of(size_t job) { return "job " + std::to_string(job + 1) + ": "; }

// Sets the status and the reason of the worst job.
bool all_complete(const std::vector<Report>& jobs, Run& run) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Run& job = jobs[i].arms[0].runs[0];
    if (job.status == Status::complete || (i > 0 && job.status <= run.status)) continue;
    run.status = job.status;
    if (job.failure) run.failure = name_of(i) + *job.failure;
  }
  if (run.status == Status::complete) return true;
  set_throughput(Unknown{"not all jobs are complete"}, run);
  return false;
}

template <class MergeThroughput>
std::pair<Run, std::vector<Environment>> merged(std::vector<Report> jobs, bool unlike,
                                                const MergeThroughput& merge_throughput) {
  std::pair found(jobs.at(0).arms.at(0).runs.at(0), jobs[0].environments);
  if (jobs.size() == 1) return found;
  auto& [run, environments] = found;
  run.communication.reset();  // each job has its own
  run.warnings.clear();
  for (size_t i = 0; i < jobs.size(); ++i) {
    Run& job = jobs[i].arms.at(0).runs.at(0);
    for (Warning warning : job.warnings) {
      warning.job = i;
      run.warnings.push_back(std::move(warning));
    }
    if (i == 0) continue;
    merge_environments(jobs[i].environments, job.ranks, environments);
    for (Rank& rank : job.ranks) {  // not all of a job that ended early
      rank.rank += run.world_size;
      run.ranks.push_back(rank);
    }
    run.world_size += job.world_size;
    if (run.peak_flops_per_second && job.peak_flops_per_second) {
      run.peak_flops_per_second = *run.peak_flops_per_second + *job.peak_flops_per_second;
    }
  }
  if (!all_complete(jobs, run)) return found;
  merge_throughput(jobs, run);
  if (unlike && run.status == Status::complete) separate_unlike_jobs(jobs, run);
  return found;
}

size_t place_of(const Environment& found, std::vector<Environment>& all) {
  auto place = std::ranges::find(all, operating_system_of(found), operating_system_of);
  if (place == all.end()) {
    place = all.insert(place, found);
    place->gpus.clear();
  }
  return place - all.begin();
}

// A process with a share of the multiprocessors sees that share as the GPU.
int64_t place_of(const Gpu& gpu, std::vector<Gpu>& gpus) {
  const auto same = [&](const Gpu& other) {
    return gpu.uuid && other.uuid && *gpu.uuid == *other.uuid &&
           gpu.multiprocessors == other.multiprocessors;
  };
  auto place = std::ranges::find_if(gpus, same);
  if (place == gpus.end()) place = gpus.insert(place, gpu);
  return place - gpus.begin();
}

}  // namespace

std::pair<Run, std::vector<Environment>> merge_jobs(std::vector<Report> jobs, bool unlike) {
  return merged(std::move(jobs), unlike, merge_throughput);
}

std::pair<Run, std::vector<Environment>> merge_serial_jobs(std::vector<Report> jobs, bool unlike) {
  return merged(std::move(jobs), unlike, merge_serial_throughput);
}

void merge_environments(const std::vector<Environment>& found, std::vector<Rank>& ranks,
                        std::vector<Environment>& all) {
  for (Rank& rank : ranks) {
    const Environment& own = found.at(rank.environment);
    const size_t place = place_of(own, all);
    rank.environment = static_cast<int64_t>(place);
    if (rank.gpu) rank.gpu = place_of(own.gpus.at(*rank.gpu), all[place].gpus);
  }
}

}  // namespace nearmetal
