// Figures of the steps that the training loop recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bench/run/trainer.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// The steps of the window as far as it went.
std::span<const StepRecord> steps_of_window(const TrainerResult& result);

/// The same as a window of one rank with this batch; none where it did not open.
std::optional<TimedWindow> window_of(const TrainerResult& result, int64_t batch);

int64_t skipped_updates(std::span<const StepRecord> steps);

/// Why this is no training: a loss that is not finite, no update at all, or an error of the device.
std::optional<std::string> failure_of(const TrainerResult& result);

/// Whether the value fell more than ten-fold from the first tenth of the steps to the last.
bool fell(std::span<const StepRecord> steps, float StepRecord::*value);

StepTime step_time_of(std::span<const double> seconds);

/// Adds sums and the roofline: each entry at the slower of its arithmetic at the matrix ceiling and
/// its traffic at the copy ceiling (Williams, Waterman, Patterson: "Roofline", 2009).
StepProfile step_profile(const Profile& profile, double step_seconds);

}  // namespace nearmetal
