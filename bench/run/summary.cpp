#include "bench/run/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "bench/cli/destination.h"
#include "models/networks/registry.h"
#include "models/roofline.h"
#include "reports/statistics/statistics.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr double clocks_may_differ_by = 0.02;
constexpr double clock_noise_seconds = 0.005;  // of one look at the host's clock among others
constexpr int64_t fewest_for_drift = 10;       // steps; among fewer, one outlier is a trend
constexpr double vanished_below = 0.1;         // of the value at the window's start
constexpr double diverged_above = 10;          // times the loss of guessing, ln(classes)

void warn(Run& run, const char* code, const std::string& text) {
  run.warnings.push_back({code, text});
}

template <class T, class U>
Maybe<T> known_or(const std::optional<U>& value, const char* reason) {
  if (!value) return Unknown{reason};
  return T(*value);
}

StepTime step_time_of(std::span<const double> seconds) {
  StepTime time;
  time.median_seconds = median(seconds);
  time.p95_seconds = quantile(seconds, 0.95);
  time.p99_seconds = quantile(seconds, 0.99);
  time.jitter_seconds = robust_deviation(seconds);
  time.drift = known_or<double>(relative_drift(seconds), "fewer than 2 steps");
  time.autocorrelation =
      known_or<double>(lag1_autocorrelation(seconds), "fewer than 3 steps, or all equal");
  const auto error = batch_means_error(seconds);
  time.relative_standard_error = time.effective_steps =
      Unknown{"fewer than 10 steps, or all equal"};
  if (error) {
    time.relative_standard_error = error->standard_error / mean(seconds);
    time.effective_steps = error->effective_samples;
  }
  return time;
}

Maybe<double> gradient_norm(const StepRecord& step, bool forward_only) {
  if (forward_only) return Unknown{"forward pass only"};
  if (!std::isfinite(step.gradient_norm))
    return Unknown{"the gradient of that step was not finite"};
  return double{step.gradient_norm};
}

// Of finite values, where there are some; one step may be far from its neighbours.
double median_of(std::span<const StepRecord> steps, float StepRecord::*value) {
  std::vector<double> values;
  for (const StepRecord& step : steps) {
    if (std::isfinite(step.*value)) values.push_back(step.*value);
  }
  return values.empty() ? NAN : median(values);
}

// From the first tenth of the window to the last.
bool fell(std::span<const StepRecord> window, float StepRecord::*value) {
  const size_t tenth = (window.size() + 9) / 10;
  return median_of(window.last(tenth), value) <
         vanished_below * median_of(window.first(tenth), value);
}

void fill_proof(std::span<const StepRecord> window, const RunConfig& config, Run& run) {
  Proof& proof = run.proof;
  const bool forward_only = config.forward_only;
  proof.window_start_loss = double{window.front().loss};
  proof.window_end_loss = double{window.back().loss};
  proof.window_start_gradient_norm = gradient_norm(window.front(), forward_only);
  proof.window_end_gradient_norm = gradient_norm(window.back(), forward_only);
  if (*proof.window_end_loss > diverged_above * std::log(static_cast<double>(config.classes))) {
    warn(run, "diverged", "the loss is far above that of guessing; see --learning-rate");
  }
  if (fell(window, &StepRecord::loss)) {
    warn(run, "falling_loss", "the loss fell more than ten-fold: not the work of usual training");
  }
  if (!forward_only && fell(window, &StepRecord::gradient_norm)) {
    warn(run, "vanishing_gradient",
         "the gradient fell more than ten-fold: small values take less power and may run faster");
  }
}

void fill_throughput(const RunConfig& config, const DeviceInfo& device, Run& run) {
  const double samples_per_second = static_cast<double>(run.window->samples) / run.window->seconds;
  run.throughput = samples_per_second;
  run.flops_per_second = samples_per_second * run.flops_per_sample;
  const auto peak = device.peak_flops_per_second.find(*config.precision);
  if (peak == device.peak_flops_per_second.end() || peak->second <= 0) {
    run.peak_flops_per_second = run.share_of_peak =
        Unknown{"no peak is known for this device and precision"};
    return;
  }
  run.peak_flops_per_second = peak->second;
  run.share_of_peak = *run.flops_per_second / peak->second;
}

void warn_of_timing(const WarmUp& warm_up, const Rank& rank, Run& run) {
  if (!warm_up.steady) {
    warn(run, "not_steady",
         "step times were not steady after " + std::to_string(warm_up.steps) +
             " warm-up steps; a longer --warmup may help");
  }
  const Maybe<double>& drift = rank.step_time->drift;
  if (run.window->steps >= fewest_for_drift && std::abs(*drift) > warm_up.limit) {
    warn(run, "drift", "step times changed by " + percent(*drift, 2) + " over the timed window");
  }
  const double seconds = run.window->seconds;
  const double difference = *rank.host_window_seconds - seconds;
  if (std::abs(difference) > std::max(clock_noise_seconds, clocks_may_differ_by * seconds)) {
    warn(run, "clocks_differ",
         "the host's clock differs from the sum of the window's steps by " +
             percent(difference / seconds, 2));
  }
}

void fill_window(const TrainerResult& result, const RunConfig& config, const DeviceInfo& device,
                 Run& run, Rank& rank) {
  const std::span window = std::span(result.steps).subspan(result.window_first_step);
  const std::span seconds = std::span(rank.step_seconds).subspan(result.window_first_step);
  const auto steps = static_cast<int64_t>(window.size());
  run.window = TimedWindow{.first_step = result.window_first_step,
                           .steps = steps,
                           .samples = steps * *config.batch,
                           .seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0)};
  rank.step_time = step_time_of(seconds);
  rank.host_window_seconds = result.host_window_seconds;
  rank.window_start_unix_seconds =
      std::chrono::duration<double>(result.window_start.time_since_epoch()).count();
  if (exchanges_gradients(config, run.world_size)) {
    std::vector<double> exposed;
    for (const StepRecord& step : window) exposed.push_back(step.exposed_communication_seconds);
    rank.exposed_communication_seconds = median(exposed);
  } else {
    rank.exposed_communication_seconds = Unknown{"no gradients are exchanged"};
  }
  rank.skipped_updates = std::count_if(window.begin(), window.end(),
                                       [](const StepRecord& step) { return step.update_skipped; });
  if (rank.skipped_updates > 0) {
    warn(run, "skipped_updates",
         std::to_string(rank.skipped_updates) + " of " + std::to_string(steps) +
             " updates were skipped as their gradient was not finite");
  }
  fill_throughput(config, device, run);
  fill_proof(window, config, run);
  warn_of_timing(*result.warm_up, rank, run);
}

}  // namespace

Run run_of(const Graph& graph, const RunConfig& config) {
  Run run;
  run.started_at = time_stamp();
  run.sample = find_network(config.model).sample;
  run.parameters = graph.parameter_count();
  run.flops_per_sample =
      config.forward_only ? graph.forward_flops_per_sample() : graph.training_flops_per_sample();
  return run;
}

void leave_open(Run& run, Rank& rank, const Unknown& why) {
  run.warm_up = why;
  run.window = why;
  run.throughput = run.flops_per_second = why;
  run.peak_flops_per_second = run.share_of_peak = why;
  run.proof.window_start_loss = run.proof.window_end_loss = why;
  run.proof.window_start_gradient_norm = run.proof.window_end_gradient_norm = why;
  rank.set_up = why;
  rank.step_time = why;
  rank.host_window_seconds = why;
  rank.device_bytes = why;
  rank.plans_sha256 = why;
  rank.exposed_communication_seconds = why;
}

void summarise(const TrainerResult& result, const RunConfig& config, const DeviceInfo& device,
               Run& run, Rank& rank) {
  for (const StepRecord& step : result.steps) {
    rank.step_seconds.push_back(step.seconds);
    rank.loss.push_back(step.loss);
  }
  if (result.warm_up) run.warm_up = *result.warm_up;
  if (result.warm_up && result.steps.size() > static_cast<size_t>(result.window_first_step)) {
    fill_window(result, config, device, run, rank);
  }
  if (result.stopped) {
    run.status = Status::partial;
    run.failure = "interrupted";
  }
  if (!result.failure.empty()) fail_run(run, result.failure);
  if (run.window && rank.skipped_updates == run.window->steps) {
    fail_run(run,
             "the network was not trained: every update was skipped, as no gradient was finite; "
             "a lower --learning-rate or --loss-scale may help");
  }
  if (result.failed_step) {
    run.proof.loss_finite = false;
    run.proof.failed_step = result.failed_step;
    fail_run(run, "the loss of step " + std::to_string(*result.failed_step) +
                      " is not finite; a lower --learning-rate or --loss-scale may help");
  }
}

void fail_run(Run& run, const std::string& why) {
  run.status = Status::failed;
  run.failure = why;
  run.throughput = run.flops_per_second = run.share_of_peak = Unknown{"the run failed"};
}

StepProfile summarise(const Profile& profile, double step_seconds) {
  StepProfile result;
  result.entries = profile.entries;
  result.step_seconds = step_seconds;
  for (const ProfileEntry& entry : profile.entries) result.sum_seconds += entry.seconds;
  const double copy = profile.copy_bytes_per_second;
  const double matrix = profile.matrix_flops_per_second;
  const Unknown unmeasured{"the backend does not measure this ceiling"};
  result.copy_bytes_per_second = copy > 0 ? Maybe(copy) : unmeasured;
  result.matrix_flops_per_second = matrix > 0 ? Maybe(matrix) : unmeasured;
  if (copy <= 0 || matrix <= 0) {
    result.roofline_seconds = result.share_of_roofline = unmeasured;
    return result;
  }
  double roofline = 0;
  for (const ProfileEntry& entry : profile.entries) {
    roofline += floor_seconds(entry.bytes, entry.flops, {copy, matrix});
  }
  result.roofline_seconds = roofline;
  result.share_of_roofline = roofline / step_seconds;
  return result;
}

}  // namespace nearmetal
