// How long a sweep will take, as far as its plan tells.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

struct PlannedTime {
  double windows_seconds = 0;  // timed windows of given length, all together
  int64_t launches = 0;
  int64_t steps = 0;        // of windows that are given so: as long as these take
  double most_seconds = 0;  // by the limit of a job

  /// The seconds with an assumption on start and warm-up; steps count nothing, so that it is the
  /// least.
  double seconds() const;
};

PlannedTime planned_time(const LaunchPlan& plan, std::span<const Launch> launches);

/// "about 35 min: 60 starts one after another, taken as 15 s each with warm-up, and windows of 20
/// min in all; at most 30 h 0 min by the limit of a job". Where windows are given in steps:
/// "unknown: 6000 steps in all, beside ...; at least 15 min, at most ...".
std::string planned_time_text(const PlannedTime& time);

class TimeLeft {
 public:
  /// `left`: runs that are still to be made, this one among them.
  void begin_run(int64_t left);
  void end_run();
  /// ", about 4 min left"; empty before a run is through.
  std::string text() const;

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point begin_;
  std::chrono::duration<double> finished_{};  // all runs together
  int64_t runs_ = 0;
  int64_t left_ = 0;
};

}  // namespace nearmetal
