// One rank's loop: warm-up until steady, then the timed window.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/monitor/progress.h"
#include "bench/run/consensus.h"
#include "bench/run/steady_state.h"
#include "models/program.h"

namespace nearmetal {

struct TrainerOptions {
  WarmUpRule warm_up;
  std::optional<int64_t> window_steps;  // else as many as fill the duration
  double window_seconds = 20;
};

struct TrainerResult {
  std::vector<StepRecord> steps;  // all, warm-up first, up to the first whose loss is not finite
  std::optional<WarmUp> warm_up;  // none: it did not end
  int64_t window_first_step = 0;
  int64_t window_steps = 0;  // as planned; a stop leaves fewer in `steps`
  std::chrono::system_clock::time_point window_start;
  double host_window_seconds = 0;  // from the last end of a warm-up step to the last end of all
  std::chrono::steady_clock::time_point first_step_end;
  std::optional<int64_t> failed_step;  // its loss was not finite
  std::string failure;                 // what the device or its library reported; empty: nothing
  bool stopped = false;                // by the stop flag, or by another rank

  bool complete() const {
    return warm_up && steps.size() == static_cast<size_t>(window_first_step + window_steps);
  }
};

/// Keeps as many steps queued as the program takes and waits for the oldest. The window opens once
/// all ranks are steady; its length is fixed then (by the median warm-up step where a duration is
/// asked for), and memory for it is there. After it, steps go on unrecorded until all ranks are
/// through theirs. `stop` not 0 ends the loop, of all ranks, after the steps in flight; so does a
/// loss that is not finite. Errors of the device end it, too, and what was measured before stays.
TrainerResult train(Program& program, const TrainerOptions& options, Consensus& consensus,
                    const std::atomic<int>& stop, TrainerProgress& progress);

}  // namespace nearmetal
