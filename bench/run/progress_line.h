// One line on a terminal that shows how far the training loop is.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>

#include "bench/run/trainer.h"
#include "models/sample_unit.h"

namespace nearmetal {

/// "step 120 of 623, 7950 images/s, 16 s left", or how far warm-up is.
std::string progress_text(const TrainerProgress& progress, int64_t samples_per_step,
                          SampleUnit unit);

/// Rewrites the line four times a second from a thread of its own, so that the loop never prints;
/// clears it at the end.
class ProgressLine {
 public:
  ProgressLine(std::ostream& err, const TrainerProgress& progress, int64_t samples_per_step,
               SampleUnit unit);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void show();

  std::ostream& err_;
  const TrainerProgress& progress_;
  int64_t samples_per_step_;
  SampleUnit unit_;
  std::mutex mutex_;
  std::condition_variable over_changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace nearmetal
