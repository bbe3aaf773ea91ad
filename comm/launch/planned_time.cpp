#include "comm/launch/planned_time.h"

#include "reports/text/text.h"

namespace nearmetal {
namespace {

// Launcher, set-up and warm-up: an assumption, which the first run replaces. Where kernels are
// still to be chosen it takes longer.
constexpr double start_seconds = 15;

bool is_serial(const Placement& placement) {
  return placement.share() && placement.share()->mode == SharingMode::serial;
}

}  // namespace

double PlannedTime::seconds() const {
  return windows_seconds + start_seconds * static_cast<double>(launches);
}

PlannedTime planned_time(const LaunchPlan& plan, std::span<const Launch> launches) {
  PlannedTime time;
  for (const Launch& launch : launches) {
    const Placement& placement = plan.placements.at(launch.layout);
    const RunConfig& config = plan.workloads.at(launch.layout).config;
    const auto turns = is_serial(placement) ? static_cast<int64_t>(placement.jobs.size()) : 1;
    time.launches += turns;
    time.most_seconds += static_cast<double>(turns) * plan.file.limits.job_seconds;
    if (config.steps) {
      time.of_steps += turns;
    } else {
      time.windows_seconds += static_cast<double>(turns) * config.duration_seconds;
    }
  }
  return time;
}

std::string planned_time_text(const PlannedTime& time) {
  const bool open = time.of_steps > 0;
  std::string text = std::string(open ? "more than " : "about ") + duration_text(time.seconds()) +
                     ": " + counted(time.launches, "start") + " with warm-up, taken as " +
                     duration_text(start_seconds) + " each";
  if (time.windows_seconds > 0) {
    text += ", and windows of " + duration_text(time.windows_seconds) + " in all";
  }
  if (open) {
    text += time.of_steps < time.launches ? ", and windows that are given in steps"
                                          : ", and the steps of their windows";
  }
  return text + "; at most " + duration_text(time.most_seconds) + " by the limit of a job";
}

}  // namespace nearmetal
