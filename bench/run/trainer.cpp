#include "bench/run/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "bench/cli/process.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr int64_t fewest_judged = 6;  // so that one outlier hardly moves the median of a half
constexpr int64_t most_judged = 64;
constexpr int64_t longest_window = 4;  // times the steps that were planned when it opened

double halves_difference(std::span<const double> samples) {
  const size_t half = samples.size() / 2;
  return (median(samples.last(half)) - median(samples.first(half))) / mean(samples);
}

using Clock = std::chrono::steady_clock;

class Trainer {
 public:
  Trainer(Program& program, const TrainerOptions& options, Consensus& consensus,
          const std::atomic<int>& stop, TrainerProgress& progress)
      : program_(program),
        options_(options),
        consensus_(consensus),
        stop_(stop),
        progress_(progress) {
    result_.steps.reserve(options.maximum_steps);
    warm_up_seconds_.reserve(options.maximum_steps);
    progress_.recorded.reserve(options.maximum_steps);
  }

  TrainerResult run() {
    try {
      agree(false);
      while (!over_) {
        fill_queue();
        take_step();
      }
      drain();
    } catch (const std::exception& error) {
      result_.failure = message_of(error);
    }
    return std::move(result_);
  }

 private:
  // Whether all ranks are ready for what comes next; ends the loop if one wants to stop. Sets the
  // number of the window's steps, unless this rank is through them.
  bool agree(bool ready, int64_t window_steps = 0) {
    const bool stop = stop_.load(std::memory_order_relaxed) != 0 || result_.failed_step;
    const StepVote agreed =
        consensus_.agree({.ready = ready, .stop = stop, .window_steps = window_steps});
    if (!result_.complete()) plan_window(agreed.window_steps);
    if (agreed.stop) {
      result_.stopped = !result_.failed_step && !result_.complete();
      over_ = true;
    }
    return agreed.ready && !agreed.stop;
  }

  // Ranks in step queue the same number of steps, also before the end of the window.
  void fill_queue() {
    const auto wanted = [&] {
      const auto queued = static_cast<int64_t>(result_.steps.size()) + in_flight_;
      return !result_.warm_up || result_.complete() ||
             queued < result_.window_first_step + result_.window_steps;
    };
    while (in_flight_ < program_.max_steps_in_flight() && wanted()) {
      program_.enqueue_step();
      ++in_flight_;
    }
  }

  void take_step() {
    const StepRecord step = program_.wait_step();
    --in_flight_;
    const Clock::time_point end = Clock::now();
    progress_.steps_done.fetch_add(1);
    if (!result_.complete()) record(step, end);
    if (!result_.warm_up) {
      if (agree(steady())) open_window(end);
    } else {
      const int64_t wanted = wanted_steps();
      over_ = agree(measured_steps() >= wanted, wanted) || over_;
    }
  }

  void record(const StepRecord& step, Clock::time_point end) {
    if (result_.failed_step) return;
    if (result_.steps.empty()) progress_.first_step_end = result_.first_step_end = end;
    if (!std::isfinite(step.loss)) {
      result_.failed_step = static_cast<int64_t>(result_.steps.size());
      return;
    }
    if (!(step.seconds > 0 && std::isfinite(step.seconds)))
      throw std::runtime_error("a step took no time: the clock is broken");
    result_.steps.push_back(step);
    progress_.recorded.add(step);
    if (result_.warm_up) {
      progress_.window_measured.fetch_add(1);
      window_seconds_ += step.seconds;
      progress_.window_seconds.store(window_seconds_);
      result_.host_window_seconds = std::chrono::duration<double>(end - window_start_).count();
    } else {
      warm_up_seconds_.push_back(step.seconds);
    }
  }

  // Once steady, a rank that waits for others stays ready, whatever its steps do meanwhile.
  bool steady() {
    judged_ = judge_warm_up(warm_up_seconds_, options_);
    ready_ = ready_ || warm_up_is_over(warm_up_seconds_, judged_);
    return ready_;
  }

  void open_window(Clock::time_point now) {
    result_.window_first_step = judged_.steps;
    plan_window(consensus_.agree_steps(options_.window_steps.value_or(steps_of_duration(judged_))));
    most_window_steps_ = result_.window_steps * (options_.window_steps ? 1 : longest_window);
    result_.steps.reserve(result_.window_first_step + most_window_steps_);
    progress_.recorded.reserve(result_.window_first_step + most_window_steps_);
    result_.warm_up = progress_.warm_up = judged_;
    window_start_ = now;
    result_.window_start = progress_.window_start = std::chrono::system_clock::now();
    progress_.window_first_step.store(result_.window_first_step);
  }

  void plan_window(int64_t steps) {
    result_.window_steps = steps;
    progress_.window_steps.store(steps);
  }

  int64_t steps_of_duration(const WarmUp& judged) const {
    const auto recent = std::max(judged.judged_steps, (judged.steps + 1) / 2);
    const double step_seconds = median(std::span(warm_up_seconds_).last(recent));
    return std::llround(
        std::clamp(std::ceil(options_.window_seconds / step_seconds), 1., most_steps));
  }

  int64_t measured_steps() const {
    return static_cast<int64_t>(result_.steps.size()) - result_.window_first_step;
  }

  // Follows the mean of the window's steps so far, which may differ from the warm-up's. The plan
  // stays as it is once it is right within a step, so that it does not change near the end.
  int64_t wanted_steps() const {
    const int64_t measured = measured_steps(), planned = result_.window_steps;
    if (options_.window_steps || result_.complete() || measured == 0) return planned;
    const double wanted = options_.window_seconds / window_seconds_ * static_cast<double>(measured);
    if (std::abs(wanted - static_cast<double>(planned)) < 1) return planned;
    const auto most = static_cast<double>(most_window_steps_);
    const int64_t steps = std::llround(std::min(std::ceil(wanted), most));
    return std::max(measured + in_flight_, steps);
  }

  // Steps that were queued beyond the end, or before a stop: the device must be idle afterwards.
  void drain() {
    for (; in_flight_ > 0; --in_flight_) program_.wait_step();
  }

  Program& program_;
  const TrainerOptions& options_;
  Consensus& consensus_;
  const std::atomic<int>& stop_;
  TrainerProgress& progress_;
  TrainerResult result_;
  std::vector<double> warm_up_seconds_;
  WarmUp judged_;  // by the steps so far
  Clock::time_point window_start_;
  double window_seconds_ = 0;  // so far
  int64_t most_window_steps_ = 0;
  int64_t in_flight_ = 0;
  bool ready_ = false;  // for the window
  bool over_ = false;
};

constexpr double most_skipped = 0.1;    // of the window's updates: a step without one is shorter
constexpr double vanished_below = 0.1;  // of the value at the window's start

// The median of finite values, where there are some; one step may be far from its neighbours.
double median_of(std::span<const StepRecord> steps, float StepRecord::*value) {
  std::vector<double> values;
  for (const StepRecord& step : steps) {
    if (std::isfinite(step.*value)) values.push_back(step.*value);
  }
  return values.empty() ? NAN : median(values);
}

}  // namespace

WarmUp judge_warm_up(std::span<const double> step_seconds, const TrainerOptions& options) {
  WarmUp result;
  result.steps = static_cast<int64_t>(step_seconds.size());
  result.minimum_steps = options.minimum_steps;
  result.maximum_steps = options.maximum_steps;
  result.maximum_seconds = options.maximum_seconds;
  result.limit = options.limit;
  if (result.steps < fewest_judged) {
    result.drift = result.halves_difference = Unknown{"fewer than 6 steps"};
    return result;
  }
  result.judged_steps = std::clamp(result.steps / 2, fewest_judged, most_judged);
  const auto judged = step_seconds.last(result.judged_steps);
  result.drift = relative_drift(judged).value_or(0);
  result.halves_difference = halves_difference(judged);
  result.steady = result.steps >= options.minimum_steps &&
                  std::abs(*result.drift) <= options.limit &&
                  std::abs(*result.halves_difference) <= options.limit;
  return result;
}

bool warm_up_is_over(std::span<const double> step_seconds, const WarmUp& judged) {
  if (judged.steady) return true;
  if (judged.steps < judged.minimum_steps) return false;
  const double seconds = std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0);
  return judged.steps >= judged.maximum_steps || seconds >= judged.maximum_seconds;
}

TrainerOptions trainer_options(const RunConfig& config) {
  const int64_t warm_up = config.warmup.value();
  return {.minimum_steps = warm_up,
          .maximum_steps = 10 * warm_up,
          .window_steps = config.steps,
          .window_seconds = config.duration_seconds};
}

TrainerResult train(Program& program, const TrainerOptions& options, Consensus& consensus,
                    const std::atomic<int>& stop, TrainerProgress& progress) {
  return Trainer(program, options, consensus, stop, progress).run();
}

std::span<const StepRecord> steps_of_window(const TrainerResult& result) {
  if (!result.warm_up) return {};
  return std::span(result.steps).subspan(result.window_first_step);
}

int64_t skipped_updates(std::span<const StepRecord> steps) {
  return std::ranges::count_if(steps, [](const StepRecord& step) { return step.update_skipped; });
}

std::optional<TimedWindow> window_of(const TrainerResult& result, int64_t samples_per_step) {
  const std::span steps = steps_of_window(result);
  if (steps.empty()) return std::nullopt;
  TimedWindow window{.first_step = result.window_first_step,
                     .steps = std::ssize(steps),
                     .samples = std::ssize(steps) * samples_per_step};
  for (const StepRecord& step : steps) window.seconds += step.seconds;
  return window;
}

std::optional<std::string> failure_of(const TrainerResult& result) {
  if (result.failed_step) {
    return "the loss of step " + std::to_string(*result.failed_step) +
           " is not finite; a lower --learning-rate or --loss-scale may help";
  }
  const auto window = steps_of_window(result);
  const int64_t skipped = skipped_updates(window);
  if (static_cast<double>(skipped) > most_skipped * static_cast<double>(window.size())) {
    const auto steps = std::ssize(window);
    return "the network was not trained: " +
           (skipped == steps ? "every update was skipped"
                             : std::to_string(skipped) + " of " + std::to_string(steps) +
                                   " updates were skipped") +
           ", as their gradients were not finite; a lower --learning-rate or --loss-scale may help";
  }
  return result.failure;
}

bool fell(std::span<const StepRecord> window, float StepRecord::*value) {
  const size_t tenth = (window.size() + 9) / 10;
  return median_of(window.last(tenth), value) <
         vanished_below * median_of(window.first(tenth), value);
}

}  // namespace nearmetal
