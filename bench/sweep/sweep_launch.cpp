#include "bench/sweep/sweep_launch.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/run/sweep_control.h"
#include "bench/sweep/job_process.h"
#include "models/probe.h"

namespace nearmetal {
namespace {

// The time from the order to the start: enough for it to reach every host.
constexpr double start_delay_seconds = 0.5;
constexpr double least_silence_seconds = 5;   // of a rank that a busy machine keeps from speaking
constexpr double stop_patience_seconds = 20;  // to finish a step and tell what was measured
constexpr double most_seconds_apart = 1;      // clocks of jobs that are to start at once

std::string seconds_text(double seconds) { return significant(seconds, 3) + " s"; }

class RunningLaunch {
 public:
  RunningLaunch(const TimeLimits& limits, const std::atomic<int>& stop, const ShowProgress& show)
      : limits_(limits), stop_(stop), show_(show) {}

  LaunchOutcome run(const std::vector<std::vector<std::string>>& commands, bool on_this_machine) {
    try {
      for (const auto& command : commands) {
        folders_.push_back(std::make_unique<JobFolder>(on_this_machine));
        jobs_.push_back(std::make_unique<JobProcess>(command, folders_.back().get()));
      }
    } catch (const std::runtime_error& error) {
      fail(message_of(error), ExitCode::run_failed);
    }
    while (!all([](const JobProcess& job) { return job.ended(); })) {
      wait();
      for (const auto& job : jobs_) job->update();
      check_for_failures();
      conduct();
      show_(progress());
    }
    check_for_failures();
    for (const auto& job : jobs_) {
      if (job->report()) outcome_.reports.push_back(*job->report());
      if (job->neighbour()) outcome_.neighbours.push_back(*job->neighbour());
    }
    return std::move(outcome_);
  }

 private:
  template <class Condition>
  bool all(const Condition& condition) const {
    return std::ranges::all_of(jobs_, [&](const auto& job) { return condition(*job); });
  }

  void wait() const {
    std::vector<pollfd> files;
    for (const auto& job : jobs_) {
      if (job->ended()) continue;
      files.push_back({job->out(), POLLIN, 0});
      files.push_back({job->err(), POLLIN, 0});
    }
    poll(files.data(), files.size(), poll_milliseconds);
  }

  void order_all(const std::string& line) {
    for (const auto& job : jobs_) job->order(line);
  }

  void conduct() {
    if (stop_ != 0 && !stop_ordered_) {
      stop_ordered_ = steady_seconds();
      order_all(stop_order);
    }
    const auto silent = [](const JobProcess& job) { return job.heartbeats().empty(); };
    if (stop_ordered_ &&
        (steady_seconds() - *stop_ordered_ > stop_patience_seconds || all(silent))) {
      end_all();
    }
    if (!started_ && all([](const JobProcess& job) { return job.ready(); })) {
      started_ = true;
      start_all();
    }
    if (!end_ordered_ && all([](const JobProcess& job) { return job.measured(); })) {
      end_ordered_ = true;
      order_all(end_order);
    }
  }

  // One alone starts whatever its clock says.
  void start_all() {
    if (jobs_.size() == 1) return order_all(std::string(start_order) + " -inf");
    const std::string wrong = clocks_apart();
    if (!wrong.empty()) return fail(wrong, ExitCode::run_failed);
    order_all(std::string(start_order) + " " +
              std::to_string(unix_seconds() + start_delay_seconds));
  }

  // Empty where they agree, as on one host they do.
  std::string clocks_apart() const {
    const Heartbeat *ahead = nullptr, *behind = nullptr;
    for (const auto& job : jobs_) {
      const auto first = job->heartbeats().find(0);
      if (first == job->heartbeats().end() || !first->second.clock_lag_seconds) continue;
      const Heartbeat& found = first->second;
      if (!ahead || found.clock_lag_seconds < ahead->clock_lag_seconds) ahead = &found;
      if (!behind || found.clock_lag_seconds > behind->clock_lag_seconds) behind = &found;
    }
    if (!ahead || ahead->progress.host == behind->progress.host) return "";
    const double apart = *behind->clock_lag_seconds - *ahead->clock_lag_seconds;
    if (apart <= most_seconds_apart) return "";
    return "the clock of host " + behind->progress.host + " is " + seconds_text(apart) +
           " behind that of host " + ahead->progress.host +
           ": jobs at once are started and measured by the time of day; set the clocks (NTP)";
  }

  void end_all() {
    for (const auto& job : jobs_) job->end();
  }

  void fail(const std::string& why, ExitCode code, std::optional<FailureCode> failure_code = {}) {
    if (outcome_.failure) return;
    outcome_.failure_code = failure_code;
    outcome_.failure = why;
    outcome_.code = code;
    end_all();
  }

  void fail(const std::string& name, const Failure& failure) {
    auto code = static_cast<ExitCode>(failure.exit_code);
    constexpr std::array kept = {ExitCode::usage, ExitCode::not_supported,
                                 ExitCode::not_as_expected};
    if (std::ranges::find(kept, code) == kept.end()) code = ExitCode::run_failed;
    fail(name + failure.text, code, failure.code);
  }

  void check_for_failures() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const std::string name = jobs_.size() > 1 ? "job " + std::to_string(i + 1) + ": " : "";
      const JobProcess& job = *jobs_[i];
      if (job.ended()) {
        const bool reported = stop_ordered_ ? job.report() || job.neighbour()
                                            : job.has_result() && job.exit_code() == 0;
        if (!reported) fail(name, failure_of_job(job));
      } else {
        check_time(job, name);
      }
    }
  }

  void check_time(const JobProcess& job, const std::string& name) {
    const double running = steady_seconds() - begin_;
    const Event progress = job.progress();
    // The proof comes after the last step.
    const bool first = progress.steps == 0 && progress.phase != RankPhase::proof;
    std::string why;
    if (running > limits_.job_seconds) {
      why = "took longer than " + seconds_text(limits_.job_seconds);
    } else if (first && running > limits_.start_seconds) {
      why = "no step within " + seconds_text(limits_.start_seconds) + " of the start";
    } else if (job.seconds_without_step() > limits_.step_seconds) {
      why = "no step for " + seconds_text(limits_.step_seconds);
    } else if (job.seconds_of_silence() > std::max(limits_.step_seconds, least_silence_seconds)) {
      why = "no sign of life for " + seconds_text(job.seconds_of_silence());
    }
    if (!why.empty()) fail(name + why + place_of_standstill(job), ExitCode::timed_out);
  }

  std::string progress() const {
    std::vector<double> speeds;  // they do not add where jobs do unlike work
    std::vector<SampleUnit> units;
    for (const auto& job : jobs_) {
      const Event event = job->progress();
      if (event.samples_per_second <= 0) continue;
      speeds.push_back(event.samples_per_second);
      units.push_back(event.sample);
    }
    const Event first = jobs_[0]->progress();
    if (speeds.empty()) return first.phase ? to_string(*first.phase) : "";
    const auto [slowest, fastest] = std::ranges::minmax(speeds);
    const auto whole = [](double speed) { return std::to_string(std::llround(speed)); };
    const std::string rate = words_of(units).rate;
    if (jobs_.size() == 1) return whole(fastest) + " " + rate;
    return whole(slowest) + " to " + whole(fastest) + " " + rate + " each";
  }

  const TimeLimits& limits_;
  const std::atomic<int>& stop_;
  const ShowProgress& show_;
  std::vector<std::unique_ptr<JobFolder>> folders_;  // by job
  std::vector<std::unique_ptr<JobProcess>> jobs_;
  const double begin_ = steady_seconds();
  bool started_ = false, end_ordered_ = false;
  std::optional<double> stop_ordered_;
  LaunchOutcome outcome_;
};

}  // namespace

LaunchOutcome run_launch(const std::vector<std::vector<std::string>>& commands,
                         const TimeLimits& limits, const std::atomic<int>& stop,
                         const ShowProgress& show, bool on_this_machine) {
  return RunningLaunch(limits, stop, show).run(commands, on_this_machine);
}

}  // namespace nearmetal
