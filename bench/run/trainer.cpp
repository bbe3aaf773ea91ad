#include "bench/run/trainer.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

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
    result_.steps.reserve(options.warm_up.maximum_steps);
    warm_up_seconds_.reserve(options.warm_up.maximum_steps);
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
      result_.failure = error.what();
    }
    return std::move(result_);
  }

 private:
  // Whether all ranks are ready for what comes next; ends the loop if one wants to stop.
  bool agree(bool ready) {
    const bool stop = stop_.load(std::memory_order_relaxed) != 0 || result_.failed_step;
    const Wish agreed = consensus_.agree({.ready = ready, .stop = stop});
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
    } else if (agree(result_.complete())) {
      over_ = true;
    }
  }

  void record(const StepRecord& step, Clock::time_point end) {
    if (result_.failed_step) return;
    if (result_.steps.empty()) result_.first_step_end = end;
    if (!std::isfinite(step.loss)) {
      result_.failed_step = static_cast<int64_t>(result_.steps.size());
      return;
    }
    if (!(step.seconds > 0 && std::isfinite(step.seconds)))
      throw std::runtime_error("a step took no time: the clock is broken");
    result_.steps.push_back(step);
    if (result_.warm_up) {
      progress_.window_measured.fetch_add(1);
      progress_.window_seconds.store(progress_.window_seconds.load() + step.seconds);
      result_.host_window_seconds = std::chrono::duration<double>(end - window_start_).count();
    } else {
      warm_up_seconds_.push_back(step.seconds);
    }
  }

  // Once steady, a rank that waits for others stays ready, whatever its steps do meanwhile.
  bool steady() {
    judged_ = judge_warm_up(warm_up_seconds_, options_.warm_up);
    ready_ = ready_ || warm_up_is_over(warm_up_seconds_, judged_);
    return ready_;
  }

  void open_window(Clock::time_point now) {
    result_.window_first_step = judged_.steps;
    result_.window_steps =
        consensus_.agree_steps(options_.window_steps.value_or(steps_of_duration(judged_)));
    result_.steps.reserve(result_.window_first_step + result_.window_steps);
    result_.warm_up = judged_;
    window_start_ = now;
    result_.window_start = std::chrono::system_clock::now();
    progress_.window_steps.store(result_.window_steps);
    progress_.window_first_step.store(result_.window_first_step);
  }

  int64_t steps_of_duration(const WarmUp& judged) const {
    const auto recent = std::max<int64_t>(judged.judged_steps, 1);
    const double step_seconds = median(std::span(warm_up_seconds_).last(recent));
    return std::llround(
        std::clamp(std::ceil(options_.window_seconds / step_seconds), 1., most_steps));
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
  int64_t in_flight_ = 0;
  bool ready_ = false;  // for the window
  bool over_ = false;
};

}  // namespace

TrainerResult train(Program& program, const TrainerOptions& options, Consensus& consensus,
                    const std::atomic<int>& stop, TrainerProgress& progress) {
  return Trainer(program, options, consensus, stop, progress).run();
}

}  // namespace nearmetal
