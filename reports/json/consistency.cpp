#include "reports/json/consistency.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/errors.h"
#include "base/text.h"
#include "reports/document/metric.h"
#include "reports/json/form.h"
#include "reports/json/json.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

using json::Place;

// Figures that were written with four digits differ by less.
constexpr double may_differ_by = 1e-3;

[[noreturn]] void contradict(const Place& object, const char* key, const std::string& said,
                             const std::string& but) {
  throw InvalidReport(Place{&object, key, {}}.pointer() + " is " + said + ", but " + but);
}

// `what`: from which the figure follows. `tolerance`: beside that of digits.
void require_near(const Place& object, const char* key, double said, double found, const char* what,
                  double tolerance = 0) {
  const double most = may_differ_by * std::max(std::abs(said), std::abs(found)) + tolerance;
  if (std::isfinite(found) && std::abs(said - found) <= most) return;
  contradict(object, key, shortest(said, 6), std::string(what) + " " + shortest(found, 6));
}

// Ranks of a job that exchange gradients take their steps together; of others only the window of
// the first is in the report.
bool has_known_window(const Run& run, size_t rank) {
  if (run.communication || run.pipeline) return true;
  int64_t first = 0;
  for (const ConcurrentJob& job : run.jobs) {
    if (first >= static_cast<int64_t>(rank)) break;
    first += job.ranks;
  }
  return first == static_cast<int64_t>(rank);
}

void check_step_time(const StepTime& time, std::span<const double> steps, const Place& place) {
  const double middle = median(steps);
  require_near(place, "median_seconds", time.median_seconds, middle,
               "the median of the window's step_seconds is");
  require_near(place, "p95_seconds", time.p95_seconds, quantile(steps, 0.95),
               "the same of the window's step_seconds is");
  require_near(place, "p99_seconds", time.p99_seconds, quantile(steps, 0.99),
               "the same of the window's step_seconds is");
  require_near(place, "jitter_seconds", time.jitter_seconds, robust_deviation(steps),
               "the same of the window's step_seconds is", may_differ_by * middle);
}

void check_series(const MonitoredSeries& series, const Place& place) {
  const double most = may_differ_by * std::max(std::abs(series.minimum), std::abs(series.maximum));
  if (series.minimum - series.mean > most || series.mean - series.maximum > most) {
    contradict(place, "mean", shortest(series.mean, 6),
               "minimum and maximum are " + shortest(series.minimum, 6) + " and " +
                   shortest(series.maximum, 6));
  }
}

void check_references(const Rank& rank, const std::vector<Environment>& environments,
                      const Place& place) {
  const auto require = [&](const char* key, int64_t index, size_t count, const char* noun) {
    if (index < static_cast<int64_t>(count)) return;
    contradict(place, key, std::to_string(index),
               "the report has " + counted(static_cast<int64_t>(count), noun));
  };
  require("environment", rank.environment, environments.size(), "environment");
  if (rank.gpu) require("gpu", *rank.gpu, environments[rank.environment].gpus.size(), "GPU");
}

void check_rank(const Run& run, size_t index, const Place& place) {
  const Rank& rank = run.ranks[index];
  if (index == 0 && rank.kernel_choices_sha256 &&
      *rank.kernel_choices_sha256 != kernel_choices_sha256(run.kernel_choices)) {
    contradict(place, "plans_sha256", *rank.kernel_choices_sha256, "it is not that of the plans");
  }
  if (run.window && has_known_window(run, index)) {
    const std::span<const double> steps = window_steps(run, index);
    const Place time{&place, "step_time", {}};
    if (rank.step_time && !steps.empty()) check_step_time(*rank.step_time, steps, time);
  }
  if (!rank.monitoring) return;
  const Place monitoring{&place, "monitoring", {}}, all{&monitoring, "series", {}};
  for (size_t i = 0; i < rank.monitoring->series.size(); ++i) {
    check_series(rank.monitoring->series[i], Place{&all, {}, i});
  }
}

// Checks the window of a run of one job whose ranks are in step.
void check_window(const Run& run, const RunConfig& config, const Place& place) {
  const TimedWindow& window = *run.window;
  double longest = 0;
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const auto steps = std::ssize(run.ranks[i].step_seconds);
    if (window.first_step > steps || window.steps > steps - window.first_step) {
      contradict(place, "steps", std::to_string(window.steps),
                 "from first_step on rank " + std::to_string(i) + " has " +
                     std::to_string(std::max<int64_t>(0, steps - window.first_step)));
    }
    const std::span<const double> timed = window_steps(run, i);
    longest = std::max(longest, std::accumulate(timed.begin(), timed.end(), 0.0));
  }
  require_near(place, "seconds", window.seconds, longest,
               "the window's step_seconds of the slowest rank add up to");
  if (!config.batch) return;
  const double of_ranks = static_cast<double>(step_samples(config)) *
                          static_cast<double>(window.steps) * static_cast<double>(run.world_size);
  require_near(place, words_of(run.sample).plural, static_cast<double>(window.samples),
               samples_of_job(config, of_ranks),
               config.pipeline > 1 || config.micro_batches > 1
                   ? "batch x micro_batches x steps x replicas is"
               : config.accumulate == 1 ? "batch x steps x ranks is"
                                        : "batch x accumulate x steps x ranks is");
}

void check_throughput(const Run& run, const Place& place) {
  const TimedWindow& window = *run.window;
  const double half_a_sample = 0.5 / window.seconds;  // of jobs at once, whose samples are rounded
  require_near(place, words_of(run.sample).throughput_key, *run.throughput, throughput_of(window),
               "the window's samples / its seconds are", half_a_sample);
  if (run.flops_per_second) {
    require_near(place, "flops_per_second", *run.flops_per_second,
                 *run.throughput * run.flops_per_sample, "throughput x flops of a sample are");
  }
  if (run.flops_per_second && run.peak_flops_per_second && run.share_of_peak) {
    require_near(place, "share_of_peak", *run.share_of_peak,
                 *run.flops_per_second / *run.peak_flops_per_second, "the ratio of the rates is");
  }
}

std::span<const Rank> ranks_of_job(const Run& run, size_t job) {
  size_t first = 0;
  for (size_t i = 0; i < job; ++i) first += run.jobs[i].ranks;
  return std::span(run.ranks).subspan(first, run.jobs[job].ranks);
}

// Jobs that ran at once count while all of them are in their windows.
void check_jobs(const Run& run, const Arm& arm, const RunConfig& of_all, const Place& place) {
  TimeSpan common;
  for (size_t i = 0; i < run.jobs.size(); ++i) {
    common = within_windows(ranks_of_job(run, i), *run.jobs[i].first_step, common);
  }
  const Place jobs{&place, "jobs", {}};
  for (size_t i = 0; i < run.jobs.size(); ++i) {
    const ConcurrentJob& job = run.jobs[i];
    const RunConfig& config = arm.workloads.empty() ? of_all : arm.workloads.at(i);
    if (!config.batch || !in_step(config, job.ranks)) continue;  // else ranks have own windows
    const double samples = samples_within(config, ranks_of_job(run, i), *job.first_step, common);
    require_near(Place{&jobs, {}, i}, words_of(job.sample).throughput_key, job.throughput,
                 throughput_of(samples, common.end - common.begin),
                 "by its ranks' step_seconds it is");
  }
}

// Whether all is there by which its jobs at once are checked, as this build wrote it: before
// reports of 1.14 jobs of several stages counted samples once for each stage.
bool records_its_jobs(const Run& run, const Arm& arm, const Report& report) {
  const bool serial = arm.share && arm.share->mode == SharingMode::serial;
  const std::string minor = report.schema_version.substr(report.schema_version.find('.') + 1);
  if (serial || std::strtol(minor.c_str(), nullptr, 10) < 14 ||
      run.tool.value_or(report.tool) != report.tool)
    return false;
  int64_t ranks = 0, longest_warm_up = 0;
  for (const ConcurrentJob& job : run.jobs) {
    if (!job.first_step || job.ranks > std::ssize(run.ranks) - ranks) return false;
    ranks += job.ranks;
    longest_warm_up = std::max(longest_warm_up, *job.first_step);
  }
  return !run.jobs.empty() && ranks == std::ssize(run.ranks) && run.status == Status::complete &&
         std::ranges::all_of(run.ranks, [&](const Rank& rank) {
           return rank.window_start_unix_seconds && std::ssize(rank.step_seconds) > longest_warm_up;
         });
}

void check_run(const Run& run, const RunConfig& config, const Place& place) {
  const bool in_step = run.world_size == 1 || run.communication || run.pipeline;
  if (run.window && run.jobs.empty() && in_step && run.status == Status::complete) {
    check_window(run, config, Place{&place, "window", {}});
  }
  if (run.window && run.throughput && (in_step || !run.jobs.empty())) check_throughput(run, place);
  const Place ranks{&place, "ranks", {}};
  for (size_t i = 0; i < run.ranks.size(); ++i) check_rank(run, i, Place{&ranks, {}, i});
}

// Each of them is that of a job.
void check_workloads(const Arm& arm, const Place& place) {
  const auto count = std::ssize(arm.workloads);
  for (const Run& run : arm.runs) {
    if (count == 0 || run.jobs.empty() || std::ssize(run.jobs) == count) continue;
    contradict(place, "workloads", "of " + counted(count, "job"),
               "a run has " + counted(std::ssize(run.jobs), "job"));
  }
  const bool has_sum =
      does_unlike_work(arm.workloads) && std::ranges::any_of(arm.runs, [](const Run& run) {
        return run.throughput.value.has_value();
      });
  if (has_sum) contradict(place, "workloads", "of unlike work", "a run has a throughput of all");
}

void check_sources(const Report& report) {
  const Place root, arms{&root, "arms", {}};
  for (size_t i = 0; i < report.arms.size(); ++i) {
    const Place arm{&arms, {}, i}, runs{&arm, "imported", {}};
    for (size_t j = 0; j < report.arms[i].imported.size(); ++j) {
      const int64_t source = report.arms[i].imported[j].source;
      if (source < std::ssize(report.sources)) continue;
      contradict(Place{&runs, {}, j}, "source", std::to_string(source),
                 "the report has " + counted(std::ssize(report.sources), "source"));
    }
  }
}

}  // namespace

void require_consistent(const Report& report,
                        const std::function<bool(const std::string& name)>& has_setting) {
  const Place root, invocation{&root, "invocation", {}};
  if (report.kind == Kind::imported) return check_sources(report);
  if (*report.invocation.config_sha256 != config_sha256(report.invocation.config, has_setting)) {
    contradict(invocation, "config_sha256", *report.invocation.config_sha256,
               "it is not that of the settings");
  }
  require_consistent_runs(report);
}

void require_consistent_runs(const Report& report) {
  const Place root, arms{&root, "arms", {}};
  for (size_t i = 0; i < report.arms.size(); ++i) {
    const Place arm{&arms, {}, i}, runs{&arm, "runs", {}};
    const RunConfig& config = config_of(report, report.arms[i]);
    check_workloads(report.arms[i], arm);
    for (size_t j = 0; j < report.arms[i].runs.size(); ++j) {
      const Run& run = report.arms[i].runs[j];
      const Place place{&runs, {}, j}, ranks{&place, "ranks", {}};
      for (size_t k = 0; k < run.ranks.size(); ++k) {
        check_references(run.ranks[k], report.environments, Place{&ranks, {}, k});
      }
      check_run(run, config, place);
      if (records_its_jobs(run, report.arms[i], report)) {
        check_jobs(run, report.arms[i], config, place);
      }
    }
  }
}

}  // namespace nearmetal
