#include "reports/document/unlike_jobs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reports/document/metric.h"
#include "reports/document/settings.h"

namespace nearmetal {
namespace {

void keep_warnings_of(int64_t job, std::vector<Warning>& warnings) {
  std::erase_if(warnings, [&](const Warning& warning) { return warning.job.value_or(job) != job; });
  for (Warning& warning : warnings) warning.job.reset();
}

// Drops what is in the report of the first job alone.
void drop_what_is_of_the_first(Run& run) {
  run.proof = {};
  run.warm_up = Unknown{"it is known of the first job alone"};
  run.profile.reset();
  run.kernel_choices.clear();
}

}  // namespace

bool does_unlike_work(const std::vector<RunConfig>& workloads) {
  return std::ranges::any_of(
      workloads, [&](const RunConfig& config) { return !same_work(config, workloads.front()); });
}

Run run_of_job(const Run& run, size_t job) {
  Run own = run;
  own.jobs.clear();
  own.ranks.clear();
  own.peak_flops_per_second = Unknown{"it is known of all jobs together alone"};
  keep_warnings_of(static_cast<int64_t>(job), own.warnings);
  if (job > 0) drop_what_is_of_the_first(own);
  if (job >= run.jobs.size()) return own;
  const ConcurrentJob& told = run.jobs[job];
  int64_t first = 0;
  for (size_t i = 0; i < job; ++i) first += run.jobs[i].ranks;
  for (int64_t i = first; i < std::min(first + told.ranks, std::ssize(run.ranks)); ++i) {
    own.ranks.push_back(run.ranks[i]);
    own.ranks.back().rank -= first;
  }
  own.world_size = told.ranks;
  own.sample = told.sample;
  if (told.flops_per_sample) own.flops_per_sample = *told.flops_per_sample;
  if (own.window) {
    TimedWindow& window = *own.window.value;
    window.first_step = told.first_step.value_or(window.first_step);
    window.steps = told.steps.value_or(window.steps);
    window.samples = std::llround(told.throughput * window.seconds);
  }
  if (run.status == Status::complete) set_throughput(told.throughput, own);
  return own;
}

}  // namespace nearmetal
