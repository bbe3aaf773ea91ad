// How long a sweep will take, as far as its plan tells.
#pragma once

#include <span>
#include <string>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

struct PlannedTime {
  double windows_seconds = 0;  // timed windows of given length, all together
  int64_t launches = 0;
  int64_t of_steps = 0;     // launches whose windows are numbers of steps: as long as these take
  double most_seconds = 0;  // by the limit of a job

  /// With an assumption on start and warm-up; windows of steps count nothing.
  double seconds() const;
};

PlannedTime planned_time(const LaunchPlan& plan, std::span<const Launch> launches);

/// "about 35 min: 60 starts with warm-up, taken as 15 s each, and windows of 20 min in all; at most
/// 30 h 0 min by the limit of a job".
std::string planned_time_text(const PlannedTime& time);

}  // namespace nearmetal
