#include "comm/launch/planned_time.h"

#include <algorithm>

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

void TimeLeft::begin_run(int64_t left) {
  begin_ = Clock::now();
  left_ = left;
}

void TimeLeft::end_run() {
  finished_ += Clock::now() - begin_;
  ++runs_;
}

// A run that takes longer than those before may end at any time.
std::string TimeLeft::text() const {
  if (runs_ == 0) return "";
  const double mean = finished_.count() / static_cast<double>(runs_);
  const double running = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double behind_it = mean * static_cast<double>(left_ - 1);
  return ", about " + duration_text(std::max(mean - running, 0.0) + behind_it) + " left";
}

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
      time.steps += turns * *config.steps;
    } else {
      time.windows_seconds += static_cast<double>(turns) * config.duration_seconds;
    }
  }
  return time;
}

std::string planned_time_text(const PlannedTime& time) {
  const bool open = time.steps > 0;
  const std::string least = duration_text(time.seconds());
  std::string text = open ? "unknown: " + counted(time.steps, "step") + " in all, beside "
                          : "about " + least + ": ";
  text += counted(time.launches, "start") + " one after another, taken as " +
          duration_text(start_seconds) + " each with warm-up";
  if (time.windows_seconds > 0) {
    text += ", and windows of " + duration_text(time.windows_seconds) + " in all";
  }
  return text + (open ? "; at least " + least + ", at most " : "; at most ") +
         duration_text(time.most_seconds) + " by the limit of a job";
}

}  // namespace nearmetal
