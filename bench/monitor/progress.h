// How far the training loop is, for the threads beside it.
#pragma once

#include <atomic>
#include <cstdint>

namespace nearmetal {

/// What the loop tells others while it runs. Written by the loop, read by any thread.
struct TrainerProgress {
  std::atomic<int64_t> steps_done = 0;
  std::atomic<int64_t> window_first_step = -1;  // -1 during warm-up
  std::atomic<int64_t> window_steps = 0;
  std::atomic<int64_t> window_measured = 0;  // steps
  std::atomic<double> window_seconds = 0;    // so far
};

}  // namespace nearmetal
