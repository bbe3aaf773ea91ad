#include "reports/json/consistency.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <map>
#include <numeric>
#include <set>

#include "base/errors.h"
#include "base/text.h"
#include "reports/document/metric.h"
#include "reports/json/forecast_fields.h"
#include "reports/json/json.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// Figures that were written with four digits differ by less.
constexpr double may_differ_by = 1e-3;

// A figure that follows from others.
struct Derived {
  const char* key;
  Maybe<double> said, found;  // believed where one of them is not known
  const char* rule;           // by which it is found, for people
  double tolerance = 0;       // beside that of digits
  int64_t since = 0;          // the minor version that brought the rule
};

[[noreturn]] void contradict(const std::string& place, const std::string& said,
                             const std::string& but) {
  throw InvalidReport(place + " is " + said + ", but " + but);
}

// `place`: of the object that has the figures. `version`: the one whose rules they follow.
void require(const std::string& place, std::initializer_list<Derived> figures,
             int64_t version = 0) {
  for (const auto& [key, said, found, rule, tolerance, since] : figures) {
    if (!said || !found || version < since) continue;
    const double most = may_differ_by * std::max(std::abs(*said), std::abs(*found)) + tolerance;
    if (std::isfinite(*found) && std::abs(*said - *found) <= most) continue;
    contradict(place + "/" + key, shortest(*said, 6),
               std::string(rule) + " " + shortest(*found, 6));
  }
}

void require_within(const std::string& place, double value, const std::pair<double, double>& bounds,
                    const char* names) {
  const auto& [least, largest] = bounds;
  const double most = may_differ_by * std::max(std::abs(least), std::abs(largest));
  if (value >= least - most && value <= largest + most) return;
  contradict(place, shortest(value, 6),
             std::string(names) + " are " + shortest(least, 6) + " and " + shortest(largest, 6));
}

void require_index(const std::string& place, int64_t index, int64_t count, const char* noun) {
  if (index >= count) {
    contradict(place, std::to_string(index), "the report has " + counted(count, noun));
  }
}

Maybe<double> known_or(const std::optional<double>& value, const char* reason) {
  return value ? Maybe<double>(*value) : Unknown{reason};
}

Maybe<double> ratio(const Maybe<double>& part, const Maybe<double>& whole) {
  return part && whole ? Maybe<double>(*part / *whole) : Unknown{};
}

// The minor version whose rules the figures of a run follow; 0: the run ended early, or another
// build ran it.
int64_t version_of(const Report& report, const Run& run) {
  const bool is_own = run.tool.value_or(report.tool) == report.tool;
  if (!is_own || run.status != Status::complete) return 0;
  return std::atoll(report.schema_version.c_str() + report.schema_version.find('.') + 1);
}

// Ranks of a job that exchange gradients take their steps together; of others only the window of
// the first is in the report.
bool has_known_window(const Run& run, size_t rank) {
  if (run.communication || run.pipeline || run.ranks[rank].window_first_step) return true;
  int64_t first = 0;
  for (const ConcurrentJob& job : run.jobs) {
    if (first >= static_cast<int64_t>(rank)) break;
    first += job.ranks;
  }
  return first == static_cast<int64_t>(rank);
}

void check_step_time(const StepTime& time, std::span<const double> steps, int64_t version,
                     const std::string& place) {
  constexpr const char* rule = "the same of the window's step_seconds is";
  const StepTime found = step_time_of(steps);
  require(
      place,
      {{"median_seconds", time.median_seconds, found.median_seconds,
        "the median of the window's step_seconds is"},
       {"p95_seconds", time.p95_seconds, found.p95_seconds, rule},
       {"p99_seconds", time.p99_seconds, found.p99_seconds, rule},
       {"jitter_seconds", time.jitter_seconds, found.jitter_seconds, rule,
        may_differ_by * found.median_seconds},
       {"drift", time.drift, found.drift, rule, may_differ_by, 16},
       {"autocorrelation", time.autocorrelation, found.autocorrelation, rule, may_differ_by, 16},
       {"relative_standard_error", time.relative_standard_error, found.relative_standard_error,
        rule, 0, 16},
       {"effective_steps", time.effective_steps, found.effective_steps, rule, 0, 16}},
      version);
}

void check_bins(const std::vector<Bin>& bins, const std::string& place) {
  for (size_t i = 0; i < bins.size(); ++i) {
    const auto count = static_cast<double>(bins[i].count);
    require_within(place + "/" + std::to_string(i) + "/sum", bins[i].sum,
                   {count * bins[i].least, count * bins[i].largest},
                   "count x least and count x largest");
  }
}

void check_binned_step_time(const StepTime& time, std::span<const Bin> bins,
                            const std::string& place) {
  const auto check = [&](const char* name, double value, double share) {
    require_within(place + "/" + name, value, quantile_range(bins, share),
                   "the least and the largest that step_seconds_bins allow");
  };
  check("median_seconds", time.median_seconds, 0.5);
  check("p95_seconds", time.p95_seconds, 0.95);
  check("p99_seconds", time.p99_seconds, 0.99);
}

// The parts need not be all.
void check_set_up(const SetUp& set_up, const std::string& place) {
  const double parts = set_up.start_seconds + set_up.backend_seconds + set_up.prepare_seconds +
                       set_up.first_step_seconds;
  require(place, {{"total_seconds", set_up.total_seconds, std::max(parts, set_up.total_seconds),
                   "its parts add up to"}});
}

// Over `ranks` that each hold all of the gradients.
void check_communication(const Communication& communication, double ranks,
                         const std::string& place) {
  const double share = 2 * (ranks - 1) / ranks;
  double bytes = 0, seconds = 0, best = 0;
  for (size_t i = 0; i < communication.buckets.size(); ++i) {
    const Bucket& bucket = communication.buckets[i];
    const auto size = static_cast<double>(bucket.bytes);
    require(place + "/buckets/" + std::to_string(i),
            {{"bus_bandwidth_bytes_per_second", bucket.bus_bandwidth_bytes_per_second,
              share * size / bucket.seconds, "2 (ranks - 1) / ranks x bytes / seconds is"}});
    bytes += size;
    seconds += bucket.seconds;
    best = std::max(best, bucket.bus_bandwidth_bytes_per_second);
  }
  if (communication.buckets.empty()) return;
  require(place,
          {{"bytes_per_step", static_cast<double>(communication.bytes_per_step), bytes,
            "the buckets' bytes add up to"},
           {"buckets_seconds", communication.buckets_seconds, seconds,
            "the buckets' seconds add up to"},
           {"best_bus_bandwidth_bytes_per_second",
            communication.best_bus_bandwidth_bytes_per_second, best, "the best of the buckets is"},
           {"least_seconds_per_step", communication.least_seconds_per_step, share * bytes / best,
            "2 (ranks - 1) / ranks x bytes / the best bandwidth is"}});
}

void check_profile(const StepProfile& profile, const std::string& place) {
  double sum = 0;
  for (const ProfileEntry& entry : profile.entries) sum += entry.seconds;
  require(place, {{"sum_seconds", profile.sum_seconds, sum, "the entries add up to"},
                  {"share_of_roofline", profile.share_of_roofline,
                   ratio(profile.roofline_seconds, profile.step_seconds),
                   "roofline_seconds / step_seconds is"}});
}

void check_rank(const Run& run, size_t index, int64_t version, const std::string& place) {
  const Rank& rank = run.ranks[index];
  if (index == 0 && rank.kernel_choices_sha256 &&
      *rank.kernel_choices_sha256 != kernel_choices_sha256(run.kernel_choices)) {
    contradict(place + "/plans_sha256", *rank.kernel_choices_sha256, "it is not that of the plans");
  }
  if (run.window && rank.step_time && has_known_window(run, index)) {
    const std::span<const double> steps = window_steps(run, index);
    const std::span<const Bin> bins = window_bins(run, index);
    if (!steps.empty()) check_step_time(*rank.step_time, steps, version, place + "/step_time");
    if (!bins.empty()) check_binned_step_time(*rank.step_time, bins, place + "/step_time");
  }
  check_bins(rank.step_seconds_bins, place + "/step_seconds_bins");
  check_bins(rank.loss_bins, place + "/loss_bins");
  if (rank.set_up) check_set_up(*rank.set_up, place + "/set_up");
  if (!rank.monitoring) return;
  for (size_t i = 0; i < rank.monitoring->series.size(); ++i) {
    const MonitoredSeries& series = rank.monitoring->series[i];
    require_within(place + "/monitoring/series/" + std::to_string(i) + "/mean", series.mean,
                   {series.minimum, series.maximum}, "minimum and maximum");
  }
}

// Bins are written by this program alone, with all digits: their steps and sums are those of the
// window of one job whose ranks are in step.
void check_binned_window(const Run& run, const std::string& place) {
  double longest = 0;
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const std::span<const Bin> bins = window_bins(run, i);
    if (bins.empty()) return;
    int64_t steps = 0;
    double seconds = 0;
    for (const Bin& bin : bins) {
      steps += bin.count;
      seconds += bin.sum;
    }
    if (steps != run.window->steps) {
      contradict(
          place + "/steps", std::to_string(run.window->steps),
          "the window's bins of rank " + std::to_string(i) + " hold " + std::to_string(steps));
    }
    longest = std::max(longest, seconds);
  }
  if (std::abs(run.window->seconds - longest) <= 1e-9 * longest) return;
  contradict(place + "/seconds", shortest(run.window->seconds, 12),
             "the bins of the slowest rank add up to " + shortest(longest, 12));
}

// Checks the window of a run of one job whose ranks are in step.
void check_window(const Run& run, const RunConfig& config, const std::string& place) {
  const TimedWindow& window = *run.window;
  double longest = 0;
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const int64_t steps = steps_taken(run.ranks[i]);
    if (window.first_step > steps || window.steps > steps - window.first_step) {
      contradict(place + "/steps", std::to_string(window.steps),
                 "from first_step on rank " + std::to_string(i) + " has " +
                     std::to_string(std::max<int64_t>(0, steps - window.first_step)));
    }
    const std::span<const double> timed = window_steps(run, i);
    double seconds = std::accumulate(timed.begin(), timed.end(), 0.0);
    for (const Bin& bin : window_bins(run, i)) seconds += bin.sum;
    longest = std::max(longest, seconds);
  }
  require(place, {{"seconds", window.seconds, longest,
                   "the window's step_seconds of the slowest rank add up to"}});
  if (!config.batch) return;
  const double of_ranks = static_cast<double>(step_samples(config)) *
                          static_cast<double>(window.steps) * static_cast<double>(run.world_size);
  require(place, {{words_of(run.sample).plural, static_cast<double>(window.samples),
                   samples_of_job(config, of_ranks),
                   config.pipeline > 1 || config.micro_batches > 1
                       ? "batch x micro_batches x steps x replicas is"
                   : config.accumulate == 1 ? "batch x steps x ranks is"
                                            : "batch x accumulate x steps x ranks is"}});
}

// Of a run of one job whose ranks are in step.
void check_energy(const Run& run, const Rank& rank, int64_t version, const std::string& place) {
  if (!rank.monitoring || rank.monitoring->joules.value.value_or(0) <= 0) return;
  const double samples =
      static_cast<double>(run.window->samples) / static_cast<double>(run.world_size);
  require(place + "/monitoring",
          {{words_of(run.sample).per_joule_key, rank.monitoring->samples_per_joule,
            samples / *rank.monitoring->joules, "the rank's samples / joules are", 0, 16}},
          version);
}

void check_throughput(const Run& run, const std::string& place) {
  const double half_a_sample = 0.5 / run.window->seconds;  // of jobs at once, which are rounded
  require(place,
          {{words_of(run.sample).throughput_key, run.throughput, throughput_of(*run.window),
            "the window's samples / its seconds are", half_a_sample},
           {"flops_per_second", run.flops_per_second, *run.throughput * run.flops_per_sample,
            "throughput x flops of a sample are"},
           {"share_of_peak", run.share_of_peak,
            ratio(run.flops_per_second, run.peak_flops_per_second), "the ratio of the rates is"}});
}

// Jobs at once add up; one after the other, each has the speed of its own time.
void check_sum_of_jobs(const Run& run, bool is_serial, const std::string& place) {
  const std::vector<double> speeds = transformed(run.jobs, &ConcurrentJob::throughput);
  const auto [least, most] = std::ranges::minmax(speeds);
  const double found = is_serial ? std::clamp(*run.throughput, least, most)
                                 : std::accumulate(speeds.begin(), speeds.end(), 0.0);
  require(place, {{"jain_fairness", known_or(run.jain_fairness, ""), jain_fairness(speeds),
                   "that of the jobs' throughputs is"},
                  {words_of(run.sample).throughput_key, run.throughput, found,
                   is_serial ? "of its jobs one after the other it is" : "its jobs add up to"}});
}

std::span<const Rank> ranks_of_job(const Run& run, size_t job) {
  size_t first = 0;
  for (size_t i = 0; i < job; ++i) first += run.jobs[i].ranks;
  return std::span(run.ranks).subspan(first, run.jobs[job].ranks);
}

// Whether all is there by which jobs at once are checked. Before reports of 1.14 jobs of several
// stages counted samples once for each stage.
bool records_its_jobs(const Run& run, bool is_serial, int64_t version) {
  if (is_serial || version < 14) return false;
  int64_t ranks = 0, longest_warm_up = 0;
  for (const ConcurrentJob& job : run.jobs) {
    if (!job.first_step || job.ranks > std::ssize(run.ranks) - ranks) return false;
    ranks += job.ranks;
    longest_warm_up = std::max(longest_warm_up, *job.first_step);
  }
  return !run.jobs.empty() && ranks == std::ssize(run.ranks) &&
         std::ranges::all_of(run.ranks, [&](const Rank& rank) {
           return rank.window_start_unix_seconds && steps_taken(rank) > longest_warm_up;
         });
}

// Jobs that ran at once count while all of them are in their windows.
void check_jobs(const Run& run, const Arm& arm, const RunConfig& of_all, const std::string& place) {
  TimeSpan common;
  for (size_t i = 0; i < run.jobs.size(); ++i) {
    common = within_windows(ranks_of_job(run, i), *run.jobs[i].first_step, common);
  }
  for (size_t i = 0; i < run.jobs.size(); ++i) {
    const ConcurrentJob& job = run.jobs[i];
    const RunConfig& config = arm.workloads.empty() ? of_all : arm.workloads.at(i);
    const auto ranks = ranks_of_job(run, i);
    const bool knows_windows =
        in_step(config, job.ranks) || std::ranges::all_of(ranks, [](const Rank& rank) {
          return rank.window_first_step.has_value();
        });
    if (!config.batch || !knows_windows) continue;
    const double samples = samples_within(config, ranks, *job.first_step, common);
    require(place + "/jobs/" + std::to_string(i),
            {{words_of(job.sample).throughput_key, job.throughput,
              samples / (common.end - common.begin), "by its ranks' step_seconds it is"}});
  }
}

void check_run(const Report& report, const Arm& arm, const Run& run, const std::string& place) {
  const RunConfig& config = config_of(report, arm);
  const int64_t version = version_of(report, run);
  const bool is_complete = run.status == Status::complete;
  const bool is_serial = arm.share && arm.share->mode == SharingMode::serial;
  const bool in_step = run.world_size == 1 || run.communication || run.pipeline;
  const bool is_one_window = run.window && run.jobs.empty() && in_step;
  if (is_one_window && is_complete) check_window(run, config, place + "/window");
  if (run.window && run.throughput && (in_step || !run.jobs.empty())) check_throughput(run, place);
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const std::string rank = place + "/ranks/" + std::to_string(i);
    check_rank(run, i, version, rank);
    if (is_one_window) check_energy(run, run.ranks[i], version, rank);
  }
  if (is_one_window && is_complete) check_binned_window(run, place + "/window");
  if (run.communication && run.jobs.empty()) {
    check_communication(*run.communication,
                        static_cast<double>(replicas_of(config, run.world_size)),
                        place + "/communication");
  }
  if (run.profile) check_profile(*run.profile, place + "/profile");
  for (const DigestGroup& group : run.digests) {
    const auto has_all = [&](auto& step) { return step.sha256.size() == group.parameters.size(); };
    if (std::ranges::all_of(group.steps, has_all)) continue;
    contradict(place + "/digests", counted(std::ssize(group.parameters), "parameter"),
               "a step has another number of hashes");
  }
  if (records_its_jobs(run, is_serial, version)) check_jobs(run, arm, config, place);
  if (!run.jobs.empty() && run.throughput && is_complete) {
    check_sum_of_jobs(run, is_serial, place);
  }
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
void check_speedup(const Report& report, const Arm& arm, const std::string& place) {
  const auto reference = std::ranges::find(report.arms, arm.speedup->against, &Arm::name);
  if (reference == report.arms.end()) return;
  const std::vector<double> of_arm = means_of(arm), of_reference = means_of(*reference);
  if (of_arm.empty() || of_reference.empty()) return;
  const auto ranks = static_cast<double>(reference->runs.front().world_size);
  const double said = arm.speedup->speedup;
  double nearest = INFINITY;
  for (size_t i = 0; i < of_arm.size(); ++i) {
    const double found = ranks * of_arm[i] / of_reference[i];
    if (std::abs(found - said) < std::abs(nearest - said)) nearest = found;
  }
  require(place, {{"speedup", said, nearest, "by the runs of both arms it is"},
                  {"efficiency", arm.speedup->efficiency,
                   said / static_cast<double>(arm.speedup->ranks), "speedup / ranks is"}});
}

// Each of them is that of a job.
void check_workloads(const Arm& arm, const std::string& place) {
  const auto count = std::ssize(arm.workloads);
  for (const Run& run : arm.runs) {
    if (count == 0 || run.jobs.empty() || std::ssize(run.jobs) == count) continue;
    contradict(place, "of " + counted(count, "job"),
               "a run has " + counted(std::ssize(run.jobs), "job"));
  }
  const bool has_sum =
      does_unlike_work(arm.workloads) &&
      std::ranges::any_of(arm.runs, [](const Run& run) { return !!run.throughput; });
  if (has_sum) contradict(place, "of unlike work", "a run has a throughput of all");
}

// 0 is the code of what is complete, which has another only where its report could not be written
// as asked, or a signal came when all was measured.
void check_exit_code(const Report& report) {
  using enum ExitCode;
  constexpr std::array of_complete = {ok, output_failed, hung_up, interrupted, terminated};
  const auto code = static_cast<ExitCode>(report.exit_code);
  const bool fits_all = std::ranges::count(of_complete, code) > 0 ||
                        (report.survey && (code == gate_failed || code == inconclusive));
  if (report.status == Status::complete ? fits_all : code != ok) return;
  contradict("/exit_code", std::to_string(report.exit_code),
             std::string("the status is ") + to_string(report.status));
}

void check_sources(const Report& report) {
  for (size_t i = 0; i < report.arms.size(); ++i) {
    const std::string results = "/arms/" + std::to_string(i) + "/imported/";
    for (size_t j = 0; j < report.arms[i].imported.size(); ++j) {
      require_index(results + std::to_string(j) + "/source", report.arms[i].imported[j].source,
                    std::ssize(report.sources), "source");
    }
  }
}

void check_references(const Run& run, const std::vector<Environment>& environments,
                      const std::string& place) {
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const Rank& rank = run.ranks[i];
    const std::string of_rank = place + "/ranks/" + std::to_string(i);
    require_index(of_rank + "/environment", rank.environment, std::ssize(environments),
                  "environment");
    if (!rank.gpu) continue;
    require_index(of_rank + "/gpu", *rank.gpu, std::ssize(environments[rank.environment].gpus),
                  "GPU");
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
  check_exit_code(report);
  if (report.kind == Kind::imported) return check_sources(report);
  if (report.kind == Kind::predicted) return require_consistent_forecasts(report);
  if (*report.invocation.config_sha256 != config_sha256(report.invocation.config, has_setting)) {
    contradict("/invocation/config_sha256", *report.invocation.config_sha256,
               "it is not that of the settings");
  }
  require_consistent_runs(report);
}

void require_consistent_runs(const Report& report) {
  for (size_t i = 0; i < report.arms.size(); ++i) {
    const Arm& arm = report.arms[i];
    const std::string place = "/arms/" + std::to_string(i);
    check_workloads(arm, place + "/workloads");
    if (arm.speedup) check_speedup(report, arm, place + "/speedup");
    for (size_t j = 0; j < arm.runs.size(); ++j) {
      const std::string run = place + "/runs/" + std::to_string(j);
      check_references(arm.runs[j], report.environments, run);
      check_run(report, arm, arm.runs[j], run);
    }
  }
}

}  // namespace nearmetal
