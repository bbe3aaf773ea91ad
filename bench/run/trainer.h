// One rank's loop, warm-up until steady and then the timed window, and figures of its steps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/monitor/progress.h"
#include "bench/run/together.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Warm-up takes at least `minimum_steps`. It ends when the step times are steady, or else at
/// `maximum_steps` or after `maximum_seconds` (of steps), whichever is first; the report then says
/// that they were not.
struct TrainerOptions {
  int64_t minimum_steps = 3;
  int64_t maximum_steps = 30;
  double maximum_seconds = 30;
  double limit = 0.015;                   // below the margin of 2 % by which runs are judged
  std::optional<int64_t> window_steps{};  // else as many as fill the duration
  double window_seconds = 20;
};

/// Warm-up of at most ten times the minimum, or 30 s.
TrainerOptions trainer_options(const RunConfig& config);

/// The test looks at the last half of the steps so far, at least 6 and at most 64, so that slow
/// first steps drop out as warm-up goes on, whether a step takes 25 ms or 5 s. They are steady when
/// both
///  - the least-squares line over them changes by no more than `limit` of their mean (a trend), and
///  - the medians of their two halves differ by no more than that (a jump; hardly moved by
///  outliers).
/// The same numbers of the timed window itself, where drift is looked at again, are in StepTime.
WarmUp judge_warm_up(std::span<const double> step_seconds, const TrainerOptions& options);

/// Whether the window may start, steady or not.
bool warm_up_is_over(std::span<const double> step_seconds, const WarmUp& judged);

struct TrainerResult {
  std::vector<StepRecord> steps;  // all, warm-up first, up to the first whose loss is not finite
  std::optional<WarmUp> warm_up;  // none: it did not end
  int64_t window_first_step = 0;
  int64_t window_steps = 0;  // as planned last; a stop leaves fewer in `steps`
  std::chrono::system_clock::time_point window_start;
  double host_window_seconds = 0;  // from the last end of a warm-up step to the last end of all
  std::chrono::steady_clock::time_point first_step_end;
  std::optional<int64_t> failed_step;  // its loss was not finite
  std::optional<std::string> failure;  // what the device or its library reported
  bool stopped = false;                // by the stop flag, or by another rank

  bool complete() const {
    return warm_up && steps.size() == static_cast<size_t>(window_first_step + window_steps);
  }
};

/// Keeps as many steps queued as the program takes and waits for the oldest. The window opens once
/// all ranks are steady. Where a duration is asked for, as many steps as fill it are planned by the
/// median warm-up step, and again after each step of the window by their mean so far; there is
/// memory for four times the first plan. After the window, steps go on unrecorded until all ranks
/// are through theirs. `stop` not 0 ends the loop, of all ranks, after the steps in flight; so does
/// a loss that is not finite. Errors of the device end it, too, and what was measured before stays.
TrainerResult train(Program& program, const TrainerOptions& options, Consensus& consensus,
                    const std::atomic<int>& stop, TrainerProgress& progress);

/// The steps of the window as far as it went.
std::span<const StepRecord> steps_of_window(const TrainerResult& result);

/// The same as a window of one rank; none where it did not open.
std::optional<TimedWindow> window_of(const TrainerResult& result, int64_t samples_per_step);

int64_t skipped_updates(std::span<const StepRecord> steps);

/// Why this is no training: a loss that is not finite, no update at all, or an error of the device.
std::optional<std::string> failure_of(const TrainerResult& result);

/// Whether the value fell more than ten-fold from the first tenth of the steps to the last.
bool fell(std::span<const StepRecord> steps, float StepRecord::*value);

}  // namespace nearmetal
