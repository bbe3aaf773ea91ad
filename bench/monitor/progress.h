// How far the training loop is, for the threads beside it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Steps as the loop records them; any thread may copy those so far.
class RecordedSteps {
 public:
  void reserve(int64_t steps) {
    if (steps <= capacity_) return;
    std::vector<StepRecord> larger;
    larger.reserve(
        steps);  // and fills nothing, which the first step of a long window would wait for
    if (!buffers_.empty()) larger.assign(buffers_.back().begin(), buffers_.back().end());
    steps_.store(larger.data());
    buffers_.push_back(std::move(larger));
    capacity_ = steps;
  }
  void add(const StepRecord& step) {
    const int64_t count = count_.load();
    if (count == capacity_) reserve(2 * capacity_ + 1);
    buffers_.back().push_back(step);
    count_.store(count + 1);
  }
  std::vector<StepRecord> copy() const {
    const int64_t count = count_.load();
    const StepRecord* steps = steps_.load();  // of so many at least
    return {steps, steps + count};
  }

 private:
  std::vector<std::vector<StepRecord>> buffers_;  // all: an earlier one may still be read
  int64_t capacity_ = 0;
  std::atomic<const StepRecord*> steps_ = nullptr;
  std::atomic<int64_t> count_ = 0;
};

/// The progress that the loop reports while it runs. Written by the loop, read by any thread.
struct TrainerProgress {
  std::atomic<int64_t> steps_done = 0;
  std::atomic<int64_t> window_first_step = -1;  // -1 during warm-up
  std::atomic<int64_t> window_steps = 0;
  std::atomic<int64_t> window_measured = 0;  // steps
  std::atomic<double> window_seconds = 0;    // so far

  std::chrono::steady_clock::time_point first_step_end;  // known with the first of those:
  RecordedSteps recorded;
  // Known with window_first_step:
  WarmUp warm_up;
  std::chrono::system_clock::time_point window_start;
};

}  // namespace nearmetal
