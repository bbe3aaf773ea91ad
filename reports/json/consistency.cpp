#include "reports/json/consistency.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

#include "base/errors.h"
#include "base/text.h"
#include "reports/document/metric.h"
#include "reports/json/form.h"
#include "reports/json/json.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

using json::Place;

Maybe<double> known_or(const std::optional<double>& value, const char* reason) {
  return value ? Maybe<double>(*value) : Unknown{reason};
}

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

// Where it is known.
void require_near(const Place& object, const char* key, const Maybe<double>& said,
                  const Maybe<double>& found, const char* what, double tolerance = 0) {
  if (said && found) require_near(object, key, *said, *found, what, tolerance);
}

int64_t minor_version(const Report& report) {
  const std::string minor = report.schema_version.substr(report.schema_version.find('.') + 1);
  return std::strtol(minor.c_str(), nullptr, 10);
}

// Whether its figures follow the rules of this version, in all of which earlier ones may differ.
bool follows_todays_rules(const Report& report, const Run& run) {
  return minor_version(report) >= 16 && run.tool.value_or(report.tool) == report.tool &&
         run.status == Status::complete;
}

void check_step_time(const StepTime& time, std::span<const double> steps, bool by_todays_rules,
                     const Place& place) {
  constexpr const char* what = "the same of the window's step_seconds is";
  const StepTime found = step_time_of(steps);
  const double least = may_differ_by * found.median_seconds;
  require_near(place, "median_seconds", time.median_seconds, found.median_seconds,
               "the median of the window's step_seconds is");
  require_near(place, "p95_seconds", time.p95_seconds, found.p95_seconds, what);
  require_near(place, "p99_seconds", time.p99_seconds, found.p99_seconds, what);
  require_near(place, "jitter_seconds", time.jitter_seconds, found.jitter_seconds, what, least);
  if (!by_todays_rules) return;
  require_near(place, "drift", time.drift, found.drift, what, may_differ_by);
  require_near(place, "autocorrelation", time.autocorrelation, found.autocorrelation, what,
               may_differ_by);
  require_near(place, "relative_standard_error", time.relative_standard_error,
               found.relative_standard_error, what);
  require_near(place, "effective_steps", time.effective_steps, found.effective_steps, what);
}

void check_set_up(const SetUp& set_up, const Place& place) {
  const double parts = set_up.start_seconds + set_up.backend_seconds + set_up.prepare_seconds +
                       set_up.first_step_seconds;
  if (parts > (1 + may_differ_by) * set_up.total_seconds) {
    contradict(place, "total_seconds", shortest(set_up.total_seconds, 6),
               "its parts add up to " + shortest(parts, 6));
  }
}

// Over `ranks` that each hold all of the gradients.
void check_communication(const Communication& communication, double ranks, const Place& place) {
  const Place buckets{&place, "buckets", {}};
  const double share = 2 * (ranks - 1) / ranks;
  double bytes = 0, seconds = 0, best = 0;
  for (size_t i = 0; i < communication.buckets.size(); ++i) {
    const Bucket& bucket = communication.buckets[i];
    const auto size = static_cast<double>(bucket.bytes);
    require_near(Place{&buckets, {}, i}, "bus_bandwidth_bytes_per_second",
                 bucket.bus_bandwidth_bytes_per_second, share * size / bucket.seconds,
                 "2 (ranks - 1) / ranks x bytes / seconds is");
    bytes += size;
    seconds += bucket.seconds;
    best = std::max(best, bucket.bus_bandwidth_bytes_per_second);
  }
  if (communication.buckets.empty()) return;
  require_near(place, "bytes_per_step", static_cast<double>(communication.bytes_per_step), bytes,
               "the buckets' bytes add up to");
  require_near(place, "buckets_seconds", communication.buckets_seconds, seconds,
               "the buckets' seconds add up to");
  require_near(place, "best_bus_bandwidth_bytes_per_second",
               communication.best_bus_bandwidth_bytes_per_second, best,
               "the best of the buckets is");
  require_near(place, "least_seconds_per_step", communication.least_seconds_per_step,
               share * bytes / best, "2 (ranks - 1) / ranks x bytes / the best bandwidth is");
}

void check_profile(const StepProfile& profile, const Place& place) {
  double sum = 0;
  for (const ProfileEntry& entry : profile.entries) sum += entry.seconds;
  require_near(place, "sum_seconds", profile.sum_seconds, sum, "the entries add up to");
  if (!profile.roofline_seconds) return;
  require_near(place, "share_of_roofline", profile.share_of_roofline,
               *profile.roofline_seconds / profile.step_seconds,
               "roofline_seconds / step_seconds is");
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

void check_rank(const Run& run, size_t index, bool by_todays_rules, const Place& place) {
  const Rank& rank = run.ranks[index];
  if (index == 0 && rank.kernel_choices_sha256 &&
      *rank.kernel_choices_sha256 != kernel_choices_sha256(run.kernel_choices)) {
    contradict(place, "plans_sha256", *rank.kernel_choices_sha256, "it is not that of the plans");
  }
  if (run.window && has_known_window(run, index)) {
    const std::span<const double> steps = window_steps(run, index);
    const Place time{&place, "step_time", {}};
    if (rank.step_time && !steps.empty()) {
      check_step_time(*rank.step_time, steps, by_todays_rules, time);
    }
  }
  if (rank.set_up) check_set_up(*rank.set_up, Place{&place, "set_up", {}});
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

// Of a run of one job whose ranks are in step.
void check_energy(const Run& run, const Rank& rank, const Place& place) {
  if (!rank.monitoring || rank.monitoring->joules.value.value_or(0) <= 0) return;
  const double samples =
      static_cast<double>(run.window->samples) / static_cast<double>(run.world_size);
  require_near(Place{&place, "monitoring", {}}, words_of(run.sample).per_joule_key,
               rank.monitoring->samples_per_joule, samples / *rank.monitoring->joules,
               "the rank's samples / joules are");
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

// Jobs at once add up; one after the other, each has the speed of its own time.
void check_sum_of_jobs(const Run& run, bool is_serial, const Place& place) {
  std::vector<double> speeds;
  for (const ConcurrentJob& job : run.jobs) speeds.push_back(job.throughput);
  if (run.jain_fairness) {
    require_near(place, "jain_fairness", *run.jain_fairness, jain_fairness(speeds),
                 "that of the jobs' throughputs is");
  }
  const char* key = words_of(run.sample).throughput_key;
  if (!is_serial) {
    const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
    return require_near(place, key, *run.throughput, sum, "its jobs add up to");
  }
  const auto [least, most] = std::ranges::minmax(speeds);
  const double nearest = std::clamp(*run.throughput, least, most);
  require_near(place, key, *run.throughput, nearest, "of its jobs one after the other it is");
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
  if (serial || minor_version(report) < 14 || run.tool.value_or(report.tool) != report.tool)
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

void check_run(const Run& run, const RunConfig& config, bool by_todays_rules, const Place& place) {
  const bool in_step = run.world_size == 1 || run.communication || run.pipeline;
  const bool is_one_window = run.window && run.jobs.empty() && in_step;
  if (is_one_window && run.status == Status::complete) {
    check_window(run, config, Place{&place, "window", {}});
  }
  if (run.window && run.throughput && (in_step || !run.jobs.empty())) check_throughput(run, place);
  const Place ranks{&place, "ranks", {}};
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const Place rank{&ranks, {}, i};
    check_rank(run, i, by_todays_rules, rank);
    if (by_todays_rules && is_one_window) check_energy(run, run.ranks[i], rank);
  }
  if (run.communication && run.jobs.empty()) {
    check_communication(*run.communication,
                        static_cast<double>(replicas_of(config, run.world_size)),
                        Place{&place, "communication", {}});
  }
  if (run.profile) check_profile(*run.profile, Place{&place, "profile", {}});
}

// Means of the throughputs of an arm's complete runs: of all, and of their sessions; none where it
// has no such run.
std::vector<double> means_of(const Arm& arm) {
  constexpr size_t day_digits = 10;  // of 2026-01-31T...
  std::vector<double> all, means;
  // Of operating systems, each of which has an environment of its own, and day.
  std::map<std::pair<std::set<int64_t>, std::string>, std::vector<double>> sessions;
  for (const Run& run : arm.runs) {
    if (run.status != Status::complete || run.throughput.value.value_or(0) <= 0) continue;
    all.push_back(*run.throughput);
    std::set<int64_t> systems;
    for (const Rank& rank : run.ranks) systems.insert(rank.environment);
    sessions[{systems, run.started_at.substr(0, day_digits)}].push_back(*run.throughput);
  }
  if (all.empty()) return {};
  for (const auto& [session, runs] : sessions) means.push_back(geometric_mean(runs));
  return {geometric_mean(all), geometric_mean(means)};
}

// Earlier versions took the first of these means.
void check_speedup(const Report& report, const Arm& arm, const Place& place) {
  const auto reference = std::ranges::find(report.arms, arm.speedup->against, &Arm::name);
  if (reference == report.arms.end()) return;
  const std::vector<double> of_arm = means_of(arm), of_reference = means_of(*reference);
  if (of_arm.empty() || of_reference.empty()) return;
  const auto ranks_of = [](const Arm& one) {
    return static_cast<double>(one.runs.front().world_size);
  };
  const double said = arm.speedup->speedup;
  double nearest = INFINITY;
  for (size_t i = 0; i < of_arm.size(); ++i) {
    const double found = ranks_of(*reference) * of_arm[i] / of_reference[i];
    if (std::abs(found - said) < std::abs(nearest - said)) nearest = found;
  }
  require_near(place, "speedup", said, nearest, "by the runs of both arms it is");
  require_near(place, "efficiency", arm.speedup->efficiency,
               said / static_cast<double>(arm.speedup->ranks), "speedup / ranks is");
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

// 0 is the code of what is complete, which has another only where its report could not be written
// as asked, or a signal came when all was measured.
void check_exit_code(const Report& report) {
  using enum ExitCode;
  constexpr std::array of_complete = {ok, output_failed, hung_up, interrupted, terminated};
  const auto code = static_cast<ExitCode>(report.exit_code);
  const bool is_complete = report.status == Status::complete;
  if (is_complete ? std::ranges::count(of_complete, code) > 0 : code != ok) return;
  contradict(Place{}, "exit_code", std::to_string(report.exit_code),
             std::string("the status is ") + to_string(report.status));
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

StepTime step_time_of(std::span<const double> seconds) {
  StepTime time;
  time.median_seconds = median(seconds);
  time.p95_seconds = quantile(seconds, 0.95);
  time.p99_seconds = quantile(seconds, 0.99);
  time.jitter_seconds = robust_deviation(seconds);
  time.drift = known_or(relative_drift(seconds), "fewer than 2 steps");
  time.autocorrelation =
      known_or(lag1_autocorrelation(seconds), "fewer than 3 steps, or all equal");
  const auto squared_error = variance_of_mean(seconds);
  const bool equal = seconds.size() > 1 && std::ranges::min(seconds) == std::ranges::max(seconds);
  time.relative_standard_error = time.effective_steps =
      Unknown{equal ? "all steps are equal" : "fewer than 10 independent steps: take more"};
  if (squared_error) {
    time.relative_standard_error = std::sqrt(*squared_error) / mean(seconds);
    time.effective_steps = variance(seconds) / *squared_error;
  }
  return time;
}

void require_consistent(const Report& report,
                        const std::function<bool(const std::string& name)>& has_setting) {
  const Place root, invocation{&root, "invocation", {}};
  check_exit_code(report);
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
    if (report.arms[i].speedup) {
      check_speedup(report, report.arms[i], Place{&arm, "speedup", {}});
    }
    for (size_t j = 0; j < report.arms[i].runs.size(); ++j) {
      const Run& run = report.arms[i].runs[j];
      const Place place{&runs, {}, j}, ranks{&place, "ranks", {}};
      for (size_t k = 0; k < run.ranks.size(); ++k) {
        check_references(run.ranks[k], report.environments, Place{&ranks, {}, k});
      }
      check_run(run, config, follows_todays_rules(report, run), place);
      if (records_its_jobs(run, report.arms[i], report)) {
        check_jobs(run, report.arms[i], config, place);
      }
      if (!run.jobs.empty() && run.throughput && run.status == Status::complete) {
        const auto& share = report.arms[i].share;
        check_sum_of_jobs(run, share && share->mode == SharingMode::serial, place);
      }
    }
  }
}

}  // namespace nearmetal
