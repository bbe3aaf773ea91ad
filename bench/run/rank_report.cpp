#include "bench/run/rank_report.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/environment/virtualisation.h"
#include "models/networks/registry.h"
#include "models/pipeline_schedule.h"
#include "models/probe.h"
#include "reports/document/metric.h"
#include "reports/document/warning.h"
#include "reports/json/consistency.h"
#include "reports/json/json.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr double diverged_above = 10;  // times the loss of guessing, ln(classes)
constexpr double clocks_may_differ_by = 0.02;
constexpr double clock_noise_seconds = 0.005;  // of one look at the host's clock among others
constexpr double may_be_late_by_steps = 2;     // of three in flight
constexpr int64_t fewest_for_drift = 10;       // steps; among fewer, one outlier is a trend
constexpr double stalled_above = 10;           // times the median step,
constexpr double stalled_share = 0.01;         // and so much of the window
constexpr double duration_may_differ_by = 0.1;

void warn(Run& run, const std::string& code, const std::string& text,
          std::optional<Figure> figure = {}) {
  run.warnings.push_back({code, text, figure});
}

bool sums_are_exact(const Checks& checks) {
  return std::ranges::all_of(*checks.bucket_tests, &BucketTest::exact);
}

// The check that did not pass, of several the last.
std::optional<std::string> failure_of(const Checks& checks) {
  if (checks.failure) return checks.failure;
  if (checks.boundary_test && !checks.boundary_test->exact) {
    return "values do not pass the boundary between two stages as they were sent";
  }
  if (checks.bucket_tests && !sums_are_exact(checks)) {
    return "the gradients of the ranks are not summed right";
  }
  if (!checks.outputs_finite.value_or(true))
    return "the outputs of the network are not finite, or all the same";
  if (checks.verify && !checks.verify->passed) {
    return "the network did not memorise the fixed set (--verify)";
  }
  if (checks.other_replica.value_or(0) > 0) {
    return "the parameters or momentum of rank " + std::to_string(*checks.other_replica) +
           " are not those of rank 0 at the end";
  }
  return std::nullopt;
}

void fill_status(const RankResult& result, Run& run) {
  std::optional<std::string> failure = result.failure;
  if (!failure) failure = failure_of(result.checks);
  if (!failure && result.trained) failure = failure_of(*result.trained);
  if (failure) return fail_run(*failure, run);
  const bool stopped = !result.trained || result.trained->stopped;
  const std::optional<std::string>& check = result.checks.interrupted;
  if (!stopped && !check) return;
  run.status = Status::partial;
  run.failure = stopped ? "interrupted" : "interrupted before the end of " + *check;
}

void warn_of_environment(const RunConfig& config, const Environment& environment, Run& run) {
  if (environment.claim) {
    const std::string claim = to_string(*environment.claim);
    if (const auto why = contradiction(*environment.claim, environment)) {
      warn(run, "claim_contradicted", "--environment says " + claim + ", but " + *why);
    }
  }
  if (config.device == Device::cpu && config.threads > usable_threads(environment)) {
    warn(run, "threads",
         counted(config.threads, "thread") + " share " +
             counted(usable_threads(environment), "CPU"));
  }
  const bool sums_by_mpi = config.device == Device::cpu && run.world_size > 1;
  if (sums_by_mpi && environment.limits.cross_memory_attach.value == false) {
    warn(run, "no_cross_memory_attach",
         "process_vm_readv is refused, so that sums within a host copy twice");
  }
}

Maybe<double> gradient_norm(const StepRecord& step, const RunConfig& config) {
  if (!trains(config)) return Unknown{"forward pass only"};
  if (!std::isfinite(step.gradient_norm))
    return Unknown{"the gradient of that step was not finite"};
  return double{step.gradient_norm};
}

void fill_proof(std::span<const StepRecord> window, const RunConfig& config, Run& run) {
  Proof& proof = run.proof;
  proof.window_start_gradient_norm = gradient_norm(window.front(), config);
  proof.window_end_gradient_norm = gradient_norm(window.back(), config);
  proof.window_start_loss = proof.window_end_loss = Unknown{"inference has no loss"};
  if (config.inference) return;
  proof.window_start_loss = double{window.front().loss};
  proof.window_end_loss = double{window.back().loss};
  if (*proof.window_end_loss > diverged_above * std::log(static_cast<double>(config.classes))) {
    warn(run, "diverged", "the loss is far above that of guessing; see --learning-rate");
  }
  if (fell(window, &StepRecord::loss)) {
    warn(run, "falling_loss", "the loss fell more than ten-fold: not the work of usual training");
  }
  if (trains(config) && fell(window, &StepRecord::gradient_norm)) {
    warn(run, "vanishing_gradient",
         "the gradient fell more than ten-fold: small values take less power and may run faster");
  }
}

Maybe<double> exposed_communication(const RunConfig& config, int64_t world_size,
                                    std::span<const StepRecord> window) {
  if (!exchanges_gradients(config, world_size)) return Unknown{"no gradients are exchanged"};
  return median(transformed(window, &StepRecord::exposed_communication_seconds));
}

void warn_of_warm_up(const WarmUp& warm_up, Run& run) {
  if (warm_up.steady) return;
  const std::string after =
      " after " + counted(warm_up.steps, "warm-up step") + "; a longer --warmup may help";
  if (warm_up.drift) {
    const double halves = warm_up.halves_difference.value.value_or(0);
    const double larger = std::abs(halves) > std::abs(*warm_up.drift) ? halves : *warm_up.drift;
    return warn(run, "not_steady", "step times were not steady" + after,
                Figure{larger, warm_up.limit, FigureUnit::share});
  }
  warn(run, "steadiness_unknown",
       "the steadiness of step times is unknown" + after + " (" + warm_up.drift.reason + ")");
}

void warn_of_stall(std::span<const double> step_seconds, Run& run) {
  const auto longest = std::ranges::max_element(step_seconds);
  const double typical = median(step_seconds);
  if (*longest <= stalled_above * typical) return;
  if (*longest - typical <= stalled_share * run.window->seconds) return;
  warn(run, "stall",
       "step " + std::to_string(longest - step_seconds.begin()) + " of the window took " +
           significant(*longest, 3) + " s, " + significant(*longest / typical, 3) +
           " times the median: something held it up",
       Figure{*longest / typical, stalled_above, FigureUnit::times});
}

// A window of whole steps cannot meet it better than by its longest.
void warn_of_duration(const RunConfig& config, std::span<const double> step_seconds, Run& run) {
  if (config.steps) return;
  const double asked = config.duration_seconds;
  const double off = std::abs(run.window->seconds - asked);
  if (off <= std::max(duration_may_differ_by * asked, std::ranges::max(step_seconds))) return;
  warn(run, "duration",
       "the timed window took " + significant(run.window->seconds, 3) + " s instead of " +
           significant(asked, 3) + " s (" + signed_percent(run.window->seconds / asked - 1, 1) +
           "): steps became " + (run.window->seconds < asked ? "faster" : "slower") +
           " than those of the warm-up",
       Figure{run.window->seconds / asked - 1, duration_may_differ_by, FigureUnit::share});
}

// A driver whose queue is full holds up the call that queues a step until those before it are
// through, so that the host sees the window begin late; it ends with nothing left to queue.
void warn_of_clocks(const Rank& rank, std::span<const double> step_seconds, Run& run) {
  const double seconds = run.window->seconds;
  const double difference = *rank.host_window_seconds - seconds;
  double allowed = std::max(clock_noise_seconds, clocks_may_differ_by * seconds);
  if (difference < 0) {
    allowed = std::max(allowed, may_be_late_by_steps * std::ranges::max(step_seconds));
  }
  if (std::abs(difference) <= allowed) return;
  warn(run, "clocks_differ",
       "the host's clock differs from the sum of the window's steps by " +
           percent(difference / seconds, 2),
       Figure{difference / seconds, allowed / seconds, FigureUnit::share});
}

void warn_of_drift(const WarmUp& warm_up, std::span<const double> step_seconds, Run& run) {
  const double change = relative_change(step_seconds).value_or(0);
  if (run.window->steps >= fewest_for_drift && std::abs(change) > warm_up.limit) {
    warn(run, "drift", "step times changed by " + percent(change, 2) + " over the timed window",
         Figure{change, warm_up.limit, FigureUnit::share});
  }
}

// Such as a ring over several hosts waits for; counted of the whole host.
void warn_of_network(const Rank& rank, Run& run) {
  if (!rank.monitoring) return;
  std::vector<std::string> ports;
  int64_t errors = 0;
  for (const RdmaTraffic& traffic : rank.monitoring->rdma_traffic) {
    if (traffic.errors.value.value_or(0) == 0) continue;
    errors += *traffic.errors;
    ports.push_back(std::to_string(*traffic.errors) + " at " + traffic.rdma_device + " port " +
                    std::to_string(traffic.port));
  }
  if (ports.empty()) return;
  warn(run, "rdma_errors",
       "errors of the link, or packets lost, repeated or out of order in the window: " +
           joined(ports),
       Figure{static_cast<double>(errors), 0, FigureUnit::count});
}

// The warnings that a reader of a timed window needs before its figures are believed. The window of
// the run is filled, as is the step time of the rank.
void warn_of_window(const RunConfig& config, const TrainerResult& result, const Rank& rank,
                    Run& run) {
  const auto step_seconds = std::span(rank.step_seconds).subspan(result.window_first_step);
  warn_of_warm_up(*result.warm_up, run);
  warn_of_drift(*result.warm_up, step_seconds, run);
  warn_of_clocks(rank, step_seconds, run);
  warn_of_stall(step_seconds, run);
  warn_of_network(rank, run);
  if (result.complete()) warn_of_duration(config, step_seconds, run);
}

void fill_window(const PreparedDevice& device, const TrainerResult& result, Run& run, Rank& rank) {
  const RunConfig& config = device.config;
  const std::span window = steps_of_window(result);
  run.window = *window_of(result, step_samples(config));
  const auto step_seconds = std::span(rank.step_seconds).subspan(result.window_first_step);
  rank.step_time = step_time_of(step_seconds);
  rank.host_window_seconds = result.host_window_seconds;
  rank.window_first_step = result.window_first_step;
  rank.window_start_unix_seconds =
      std::chrono::duration<double>(result.window_start.time_since_epoch()).count();
  rank.exposed_communication_seconds = exposed_communication(config, run.world_size, window);
  rank.skipped_updates = skipped_updates(window);
  if (rank.skipped_updates > 0) {
    warn(run, "skipped_updates",
         std::to_string(rank.skipped_updates) + " of " + std::to_string(run.window->steps) +
             " updates were skipped as their gradient was not finite",
         Figure{static_cast<double>(rank.skipped_updates), 0, FigureUnit::count});
  }
  const auto& peaks = device.info.peak_flops_per_second;
  const auto peak = peaks.find(*config.precision);
  run.peak_flops_per_second = Unknown{"no peak is known for this device and precision"};
  if (peak != peaks.end() && peak->second > 0) run.peak_flops_per_second = peak->second;
  set_throughput(throughput_of(*run.window), run);
  fill_proof(window, config, run);
  warn_of_window(config, result, rank, run);
}

void fill_trained(const PreparedDevice& device, const TrainerResult& result, Run& run, Rank& rank) {
  for (const StepRecord& step : result.steps) {
    rank.step_seconds.push_back(step.seconds);
    if (!device.config.inference) rank.loss.push_back(step.loss);
  }
  if (rank.monitoring && rank.monitoring->verdict != MonitorVerdict::clean) {
    run.warnings.push_back(warning_of(*rank.monitoring));
  }
  if (result.warm_up) run.warm_up = *result.warm_up;
  if (!steps_of_window(result).empty()) fill_window(device, result, run, rank);
  run.proof.loss_finite = !result.failed_step;
  run.proof.failed_step = result.failed_step;
}

// A ring of so many ranks carries 2 (ranks - 1) / ranks of the bytes over each link.
Communication tested_communication(Communication communication,
                                   const std::vector<BucketTest>& tests, int64_t world_size) {
  const auto ranks = static_cast<double>(world_size);
  for (const BucketTest& test : tests) {
    communication.bytes_per_step += test.bytes;
    communication.buckets_seconds += test.seconds;
    communication.buckets.push_back(
        {.bytes = test.bytes,
         .seconds = test.seconds,
         .bus_bandwidth_bytes_per_second =
             2 * (ranks - 1) / ranks * static_cast<double>(test.bytes) / test.seconds,
         .type = test.type});
  }
  return communication;
}

// Adds sums and the roofline: each entry at the slower of its arithmetic at the matrix ceiling and
// its traffic at the copy ceiling (Williams, Waterman, Patterson: "Roofline", 2009).
StepProfile step_profile(const Profile& profile, double step_seconds, double cache_bytes) {
  StepProfile result;
  result.entries = profile.entries;
  result.step_seconds = step_seconds;
  for (const ProfileEntry& entry : profile.entries) result.sum_seconds += entry.seconds;
  const double copy = profile.copy_bytes_per_second;
  const double matrix = profile.matrix_flops_per_second;
  const Unknown unmeasured{"the backend does not measure this ceiling"};
  if (std::isfinite(cache_bytes)) result.cache_bytes = cache_bytes;
  result.copy_bytes_per_second = copy > 0 ? Maybe(copy) : unmeasured;
  result.matrix_flops_per_second = matrix > 0 ? Maybe(matrix) : unmeasured;
  if (copy <= 0 || matrix <= 0) {
    result.roofline_seconds = result.share_of_roofline = unmeasured;
    return result;
  }
  double roofline = 0;
  for (const ProfileEntry& entry : profile.entries) {
    const double floor = floor_seconds(entry.bytes, entry.flops, {copy, matrix, cache_bytes});
    roofline += std::min(floor, entry.seconds);  // caches and tricks may beat a ceiling
  }
  result.roofline_seconds = roofline;
  result.share_of_roofline = roofline / step_seconds;
  return result;
}

void fill_checks(const PreparedDevice& device, const RankResult& result, Run& run, Rank& rank) {
  const Checks& checks = result.checks;
  if (checks.other_replica) run.proof.replicas_identical = *checks.other_replica == 0;
  if (checks.profile) {
    run.profile =
        step_profile(*checks.profile, rank.step_time->median_seconds, device.info.cache_bytes);
  }
  rank.latency = checks.latency;
  if (!device.config.inference) rank.latency = Unknown{"not inference"};
  run.proof.outputs_finite = checks.outputs_finite;
  rank.probes = checks.probes;
  run.proof.verify = checks.verify;
  run.digests = checks.digests;
  for (DigestGroup& own : run.digests) own.kernels = rank.kernel_choices_sha256.value;
  if (!checks.bucket_tests) return;
  run.communication = tested_communication(*result.prepared->communication, *checks.bucket_tests,
                                           replicas_of(device.config, run.world_size));
  run.proof.sums_exact = sums_are_exact(checks);
}

// Means over the window.
PipelineSeconds stage_seconds(std::span<const StepRecord> window) {
  PipelineSeconds mean;
  using Seconds = PipelineSeconds;
  for (double Seconds::*part : {&Seconds::span, &Seconds::forward, &Seconds::backward,
                                &Seconds::waiting, &Seconds::sending}) {
    for (const StepRecord& step : window) mean.*part += step.pipeline.*part;
    mean.*part /= static_cast<double>(window.size());
  }
  return mean;
}

// The bubble, which is of all stages, is left open.
void fill_stage(const RunConfig& config, const RankResult& result, Run& run, Rank& rank) {
  if (!result.prepared || !result.prepared->stage) return;
  run.pipeline = {.library = result.prepared->stage_library,
                  .stages = config.pipeline,
                  .replicas = replicas_of(config, run.world_size),
                  .bubble = {}};
  PipelineBubble& bubble = run.pipeline->bubble;
  for (Maybe<double>* share :
       {&bubble.measured, &bubble.simulated, &bubble.simulated_with_transfers}) {
    *share = Unknown{"the run ended before"};
  }
  bubble.ideal =
      ideal_bubble(static_cast<int>(config.pipeline), static_cast<int>(config.micro_batches));
  RankStage& stage = rank.stage.emplace(*result.prepared->stage);
  stage.seconds = Unknown{"the run ended before"};
  stage.boundary_seconds = Unknown{"the run ended before"};
  if (result.trained) {
    const std::span window = steps_of_window(*result.trained);
    if (!window.empty()) stage.seconds = stage_seconds(window);
  }
  if (result.checks.boundary_test) {
    stage.boundary_seconds = result.checks.boundary_test->seconds;
    stage.boundary_exact = result.checks.boundary_test->exact;
  }
  stage.marks = result.checks.marks;
  const double begin = stage.marks.empty() ? 0 : stage.marks.front().begin_seconds;
  for (TaskMark& mark : stage.marks) {
    mark.begin_seconds -= begin;
    mark.end_seconds -= begin;
  }
}

Rank unmeasured_rank(const RankStart& start, const Unknown& why) {
  Rank rank;
  rank.rank = start.rank;
  if (!start.environment.gpus.empty()) rank.gpu = 0;
  rank.binding = start.binding;
  rank.set_up = why;
  rank.step_time = why;
  rank.kernel_choices_sha256 = why;
  rank.device_bytes = why;
  rank.latency = why;
  rank.host_window_seconds = rank.exposed_communication_seconds = why;
  return rank;
}

Run run_of(const PreparedDevice& device, const RankStart& start, const RankResult& result) {
  const Unknown ended_before{"the run ended before"};
  Run run = unmeasured_run(device.graph, device.config, ended_before);
  Rank rank = unmeasured_rank(start, ended_before);
  run.started_at = start.started_at;
  run.tool = build_info();
  run.world_size = start.world_size;
  run.device_name = device.info.name;
  run.device_reason = device.why;
  warn_of_environment(device.config, start.environment, run);
  append(run.warnings, start.warnings);
  if (result.prepared) {
    append(run.warnings, result.prepared->warnings);
    run.kernel_choices = result.prepared->kernel_choices;
    rank.kernel_choices_sha256 = kernel_choices_sha256(run.kernel_choices);
    rank.device_bytes = result.prepared->device_bytes;
  }
  if (result.trained) {
    rank.monitoring = result.monitoring;
    fill_trained(device, *result.trained, run, rank);
    if (!rank.step_seconds.empty()) {
      SetUp set_up = start.set_up;
      set_up.prepare_seconds = result.prepared->end_seconds - result.prepared->begin_seconds;
      set_up.first_step_seconds = result.first_step_end_seconds - result.prepared->end_seconds;
      set_up.total_seconds = result.first_step_end_seconds;
      rank.set_up = set_up;
    }
  }
  rank.mpi_transports = result.mpi_transports;
  fill_checks(device, result, run, rank);
  fill_stage(device.config, result, run, rank);
  fill_status(result, run);
  run.ranks = {std::move(rank)};
  return run;
}

// The choices take the place of `auto`.
RunConfig resolved_config(RunConfig config, const std::optional<Prepared>& prepared) {
  if (!prepared || !prepared->communication) return config;
  const Communication& chosen = *prepared->communication;
  if (config.all_reduce == AllReduceKind::automatic) config.all_reduce = chosen.all_reduce;
  if (!config.bucket_mib) config.bucket_mib = chosen.bucket_mib;
  return config;
}

}  // namespace

Run unmeasured_run(const Graph& graph, const RunConfig& config, const Unknown& why) {
  Run run;
  run.device = config.device;
  run.parameters = graph.parameter_count();
  run.sample = find_network(config.model).sample;
  run.flops_per_sample =
      trains(config) ? graph.training_flops_per_sample() : graph.forward_flops_per_sample();
  run.warm_up = why;
  run.window = why;
  run.peak_flops_per_second = why;
  set_throughput(why, run);
  run.proof.window_start_loss = run.proof.window_end_loss = why;
  run.proof.window_start_gradient_norm = run.proof.window_end_gradient_norm = why;
  return run;
}

Report make_rank_report(const RunRequest& request, const PreparedDevice& device,
                        const RankStart& start, const RankResult& result) {
  const RunConfig config = resolved_config(device.config, result.prepared);
  Report report;
  report.kind = request.emulated ? Kind::emulated : Kind::measured;
  report.tool = build_info();
  report.invocation = {.argv = start.argv,
                       .started_at = start.started_at,
                       .config = config,
                       .origins = origins_of(request.given),
                       .config_sha256 = config_sha256(config)};
  report.environments = {start.environment};
  Run run = run_of(device, start, result);
  const std::optional<LinkClaim>& link = request.expected.link;
  if (link) run.link_bits_per_second = bits_per_second_of(link->rate);
  report.status = run.status;
  report.arms.push_back({.name = request.arm,
                         .kind = report.kind,
                         .grid = request.grid_point,
                         .runs = {std::move(run)}});
  return report;
}

}  // namespace nearmetal
