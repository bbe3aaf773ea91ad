#include "reports/merge/merge.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "reports/document/metric.h"
#include "reports/document/warning.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr double clock_noise_seconds = 0.01;

Run& run_of(Report& report) { return report.arms.at(0).runs.at(0); }
const Run& run_of(const Report& report) { return report.arms.at(0).runs.at(0); }

// A function of the ranks' known values; unknown with the reason of the first that is.
template <class Get, class Fold>
auto folded(std::vector<Report>& reports, const Get& get, const Fold& fold) {
  auto result = get(run_of(reports[0]));
  for (size_t i = 1; i < reports.size() && result; ++i) {
    const auto next = get(run_of(reports[i]));
    result = next ? decltype(result)(fold(*result, *next)) : next;
  }
  return result;
}

template <class Get>
Maybe<double> sum(std::vector<Report>& reports, const Get& get) {
  return folded(reports, get, [](double a, double b) { return a + b; });
}

void merge_throughput(std::vector<Report>& reports, const RunConfig& config, Run& run) {
  const bool together = in_step(config, std::ssize(reports));
  run.window = folded(
      reports, [](const Run& r) { return r.window; },
      [](TimedWindow a, const TimedWindow& b) {
        a.samples += b.samples;
        a.seconds = std::max(a.seconds, b.seconds);
        return a;
      });
  if (run.window) {
    int64_t& samples = run.window.value->samples;
    samples = std::llround(samples_of_job(config, static_cast<double>(samples)));
  }
  Maybe<double> throughput = sum(reports, [](const Run& r) { return r.throughput; });
  if (throughput && together) throughput = throughput_of(*run.window);
  run.peak_flops_per_second = sum(reports, [](const Run& r) { return r.peak_flops_per_second; });
  set_throughput(throughput, run);
}

void merge_proof(std::vector<Report>& reports, Proof& proof) {
  for (const auto member : {&Proof::window_start_loss, &Proof::window_end_loss,
                            &Proof::window_start_gradient_norm, &Proof::window_end_gradient_norm}) {
    Maybe<double> mean = sum(reports, [&](const Run& r) { return r.proof.*member; });
    if (mean) *mean.value /= static_cast<double>(reports.size());
    proof.*member = mean;
  }
  for (Report& report : reports) {
    const Proof& other = run_of(report).proof;
    proof.loss_finite = proof.loss_finite && other.loss_finite;
    if (other.failed_step && (!proof.failed_step || *other.failed_step < *proof.failed_step)) {
      proof.failed_step = other.failed_step;
    }
    if (other.outputs_finite == false) proof.outputs_finite = false;
    if (other.replicas_identical == false) proof.replicas_identical = false;
    if (other.sums_exact == false) proof.sums_exact = false;
    if (other.verify && !other.verify->passed) proof.verify = other.verify;
  }
}

void add_lower_bound(Communication& communication, double ranks) {
  double best = 0;
  for (const Bucket& bucket : communication.buckets) {
    best = std::max(best, bucket.bus_bandwidth_bytes_per_second);
  }
  if (!(best > 0)) return;
  communication.best_bus_bandwidth_bytes_per_second = best;
  communication.least_seconds_per_step =
      2 * (ranks - 1) / ranks * static_cast<double>(communication.bytes_per_step) / best;
}

// Stages have gradients of their own: those of the first are told.
void merge_communication(std::vector<Report>& reports, const RunConfig& config, Run& run) {
  if (!run.communication) return;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const auto& other = run_of(reports[rank]).communication;
    if (!other || stage_of(config, static_cast<int64_t>(rank)) > 0) continue;
    for (size_t i = 0; i < run.communication->buckets.size(); ++i) {
      Bucket& bucket = run.communication->buckets[i];
      if (other->buckets.at(i).seconds > bucket.seconds) bucket = other->buckets[i];
    }
  }
  run.communication->buckets_seconds = 0;
  for (const Bucket& bucket : run.communication->buckets) {
    run.communication->buckets_seconds += bucket.seconds;
  }
  add_lower_bound(*run.communication,
                  static_cast<double>(replicas_of(config, std::ssize(reports))));
  run.communication->exposed_seconds_per_step = folded(
      reports, [](const Run& r) { return r.ranks.at(0).exposed_communication_seconds; },
      [](double a, double b) { return std::max(a, b); });
}

std::optional<int64_t> stage_of_rank(const Report& report, int64_t rank) {
  const RunConfig& config = report.invocation.config;
  return config.pipeline > 1 ? std::optional(stage_of(config, rank)) : std::nullopt;
}

// A warning that every rank gives in the same words is given once, with the worst figure.
std::vector<Warning> merged_warnings(std::vector<Report>& reports) {
  std::vector<Warning> warnings;
  const auto takes_worse = [&](Report& report, Warning& warning) {
    for (const Warning& other : run_of(report).warnings) {
      if (other.code != warning.code || other.text != warning.text) continue;
      if (other.figure && warning.figure && is_worse(*other.figure, *warning.figure)) {
        warning.figure = other.figure;
      }
      return true;
    }
    return false;
  };
  for (size_t i = 0; i < reports.size(); ++i) {
    for (Warning warning : run_of(reports[i]).warnings) {
      const Warning own = warning;
      const bool common = std::ranges::all_of(
          reports, [&](Report& report) { return takes_worse(report, warning); });
      if (common && i > 0) continue;
      if (!common) {
        warning = own;
        warning.rank = i;
        warning.stage = stage_of_rank(reports[i], *warning.rank);
        warning.host = reports[i].environments.at(0).host_name;
      }
      warnings.push_back(warning);
    }
  }
  return warnings;
}

// Ranks in step open their windows after the same step, so that clocks which agree show starts no
// further apart than a step.
void warn_of_clock_skew(const std::vector<Environment>& environments, Run& run) {
  if (!run.window || !run.communication) return;
  const double step_seconds = mean_step_seconds(*run.window);
  const auto earlier = [](const Rank& a, const Rank& b) {
    return a.window_start_unix_seconds < b.window_start_unix_seconds;
  };
  const auto [first, last] = std::ranges::minmax_element(run.ranks, earlier);
  if (!first->window_start_unix_seconds) return;
  const double apart = *last->window_start_unix_seconds - *first->window_start_unix_seconds;
  if (first->environment == last->environment || apart < step_seconds + clock_noise_seconds) return;
  run.warnings.push_back(
      {"clock_skew",
       "the clock of " + environments.at(last->environment).host_name + " is about " +
           significant(apart, 2) + " s ahead of that of " +
           environments.at(first->environment).host_name +
           ": jobs at once start together by these clocks (chrony or NTP sets them)",
       Figure{apart, step_seconds + clock_noise_seconds, FigureUnit::seconds}});
}

// Sets the status and the reason of the worst.
template <class NameOf>
void merge_status(const std::vector<Report>& reports, const NameOf& name_of, Run& run) {
  for (size_t i = 0; i < reports.size(); ++i) {
    const Run& other = run_of(reports[i]);
    if (other.status <= run.status && i > 0) continue;
    run.status = other.status;
    if (other.failure) run.failure = name_of(i) + ": " + *other.failure;
  }
}

// The first replica's stages in their order; empty where the times of one are not known.
std::vector<RankStage> timed_stages(const Run& run, int64_t count) {
  std::vector<RankStage> stages;
  for (int64_t s = 0; s < count && s < std::ssize(run.ranks); ++s) {
    const std::optional<RankStage>& stage = run.ranks[s].stage;
    if (!stage || !stage->seconds) return {};
    stages.push_back(*stage);
  }
  return stages;
}

// Each task of a stage in its share of the marked step, scaled so that the passes together take
// their means; empty where no step was marked, or a pass of it has no length to share.
std::vector<double> task_seconds(const RankStage& stage) {
  const auto length = [](const TaskMark& mark) { return mark.end_seconds - mark.begin_seconds; };
  const auto pass = [](const TaskMark& mark) { return static_cast<size_t>(mark.task.pass); };
  const std::array means{stage.seconds->forward, stage.seconds->backward};
  std::array<double, 2> marked{};
  for (const TaskMark& mark : stage.marks) marked[pass(mark)] += length(mark);
  if (std::ranges::any_of(marked, [](double sum) { return !(sum > 0); })) return {};
  return transformed(stage.marks, [&](const TaskMark& mark) {
    return length(mark) * means[pass(mark)] / marked[pass(mark)];
  });
}

double simulated_bubble(const RunConfig& config, std::span<const StageTimes> times) {
  const auto marks =
      simulate_pipeline(config.schedule, times, static_cast<int>(config.micro_batches));
  return std::max(0.0, bubble_of(marks));
}

Maybe<double> bubble_with_transfers(const RunConfig& config, std::span<const RankStage> stages) {
  std::vector<StageTimes> times;
  for (const RankStage& stage : stages) {
    times.push_back({.task_seconds = task_seconds(stage)});
    if (std::ssize(times.back().task_seconds) != 2 * config.micro_batches) {
      return Unknown{"not every stage marked a step"};
    }
  }
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    const Maybe<double>& here = stages[i].boundary_seconds;
    const Maybe<double>& behind = stages[i + 1].boundary_seconds;
    if (!here || !behind) return Unknown{"not every boundary was tested"};
    // Both measure at least the transfer: either may have waited for the other, or for its second
    // boundary.
    times[i].transfer_seconds = std::min(*here, *behind);
  }
  return simulated_bubble(config, times);
}

// Fills what the stages of a run are together, where it is known of each.
void merge_pipeline(const RunConfig& config, Run& run) {
  if (!run.pipeline) return;
  const std::vector<RankStage> stages = timed_stages(run, config.pipeline);
  if (stages.empty()) return;
  const auto count = static_cast<double>(config.micro_batches);
  double busy = 0, span = 0;
  std::vector<StageTimes> means;
  for (const RankStage& stage : stages) {
    busy += stage.seconds->busy();
    span += stage.seconds->span;
    means.push_back({stage.seconds->forward / count, stage.seconds->backward / count});
  }
  PipelineBubble& bubble = run.pipeline->bubble;
  if (span > 0) bubble.measured = std::clamp(1 - busy / span, 0.0, 1.0);
  bubble.simulated = simulated_bubble(config, means);
  bubble.simulated_with_transfers = bubble_with_transfers(config, stages);
  bubble.ideal =
      ideal_bubble(static_cast<int>(stages.size()), static_cast<int>(config.micro_batches));
}

TimeSpan common_windows(const std::vector<Report>& jobs) {
  TimeSpan common;
  for (const Report& report : jobs) {
    const Run& run = run_of(report);
    common = within_windows(run.ranks, run.window->first_step, common);
  }
  return common;
}

void fill_window(double samples, double seconds, Run& run) {
  run.window.value->samples = std::llround(samples);
  run.window.value->seconds = seconds;
  const double first = std::ranges::min(run.jobs, {}, &ConcurrentJob::start_seconds).start_seconds;
  for (ConcurrentJob& job : run.jobs) job.start_seconds -= first;
  run.jain_fairness = jain_fairness(transformed(run.jobs, &ConcurrentJob::throughput));
  set_throughput(samples / seconds, run);
}

// Neither their samples add nor their speeds tell who got more; operations do add.
void separate_unlike_jobs(const std::vector<Report>& jobs, Run& run) {
  double flops_per_second = 0, samples_per_second = 0;
  run.parameters = 0;
  for (const Report& report : jobs) run.parameters += run_of(report).parameters;
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

void add_job(const Run& job, double samples_per_second, Run& run) {
  const Maybe<double> bus_bandwidth =
      job.communication ? job.communication->best_bus_bandwidth_bytes_per_second : Maybe<double>();
  run.jobs.push_back({.ranks = std::ssize(job.ranks),
                      .throughput = samples_per_second,
                      .start_seconds = job.ranks[0].window_start_unix_seconds.value(),
                      .first_step = job.window->first_step,
                      .steps = job.window->steps,
                      .sample = job.sample,
                      .flops_per_sample = job.flops_per_sample,
                      .parameters = job.parameters,
                      .bus_bandwidth_bytes_per_second = bus_bandwidth.value});
}

void merge_concurrent_throughput(const std::vector<Report>& jobs, Run& run) {
  const TimeSpan common = common_windows(jobs);
  const double seconds = common.end - common.begin;
  if (!(seconds > 0)) {
    run.window = Unknown{"the jobs were never in their windows at the same time"};
    return fail_run(run.window.reason + ": a window was too short, or a clock jumped", run);
  }
  double samples = 0;
  for (const Report& report : jobs) {
    const Run& job = run_of(report);
    const double of_job =
        samples_within(report.invocation.config, job.ranks, job.window->first_step, common);
    samples += of_job;
    add_job(job, of_job / seconds, run);
  }
  fill_window(samples, seconds, run);
}

// Each job counts in its own window.
void merge_serial_throughput(const std::vector<Report>& jobs, Run& run) {
  double samples = 0, seconds = 0;
  for (const Report& report : jobs) {
    const TimedWindow& window = *run_of(report).window;
    samples += static_cast<double>(window.samples);
    seconds += window.seconds;
    add_job(run_of(report), throughput_of(window), run);
  }
  fill_window(samples, seconds, run);
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

Report merge_ranks(std::vector<Report> reports) {
  if (reports.size() == 1) return std::move(reports[0]);
  Report merged = reports.at(0);
  Run& run = run_of(merged);
  merged.environments.clear();
  run.ranks.clear();
  for (Report& report : reports) {
    std::vector<Rank> ranks = run_of(report).ranks;
    merge_environments(report.environments, ranks, merged.environments);
    run.ranks.push_back(std::move(ranks.at(0)));
  }
  const auto world_size = std::ssize(reports);
  run.world_size = world_size;
  for (size_t i = 1; i < reports.size(); ++i)
    add_digests(run_of(reports[i]).digests, 0, run.digests);
  run.warnings = merged_warnings(reports);
  const RunConfig& config = merged.invocation.config;
  merge_throughput(reports, config, run);
  merge_proof(reports, run.proof);
  merge_communication(reports, config, run);
  merge_pipeline(config, run);
  warn_of_clock_skew(merged.environments, run);
  const auto name_of = [&](size_t i) {
    const auto rank = static_cast<int64_t>(i);
    return rank_text(rank, stage_of_rank(reports[i], rank),
                     reports[i].environments.at(0).host_name);
  };
  merge_status(reports, name_of, run);
  merged.status = run.status;
  return merged;
}

std::pair<Run, std::vector<Environment>> merge_jobs(std::vector<Report> jobs, bool unlike,
                                                    JobOrder order) {
  std::pair found(run_of(jobs.at(0)), jobs[0].environments);
  if (jobs.size() == 1) return found;
  auto& [run, environments] = found;
  run.communication.reset();  // each job has its own
  run.warnings.clear();
  for (size_t i = 0; i < jobs.size(); ++i) {
    Run& job = run_of(jobs[i]);
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
    add_digests(job.digests, run.world_size, run.digests);
    run.world_size += job.world_size;
    if (run.peak_flops_per_second && job.peak_flops_per_second) {
      run.peak_flops_per_second = *run.peak_flops_per_second + *job.peak_flops_per_second;
    }
  }
  merge_status(
      jobs, [](size_t i) { return "job " + std::to_string(i + 1); }, run);
  if (run.status != Status::complete) {
    set_throughput(Unknown{"not all jobs are complete"}, run);
    return found;
  }
  order == JobOrder::in_turn ? merge_serial_throughput(jobs, run)
                             : merge_concurrent_throughput(jobs, run);
  if (unlike && run.status == Status::complete) separate_unlike_jobs(jobs, run);
  return found;
}

void add_digests(const std::vector<DigestGroup>& found, int64_t first_rank,
                 std::vector<DigestGroup>& all) {
  for (DigestGroup group : found) {
    for (int64_t& rank : group.ranks) rank += first_rank;
    const auto same = std::ranges::find_if(all, [&](const DigestGroup& other) {
      return other.kernels == group.kernels && other.steps == group.steps;
    });
    if (same != all.end()) append(same->ranks, group.ranks);
    if (same == all.end()) all.push_back(group);
  }
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
