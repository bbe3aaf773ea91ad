#include "bench/run/progress_line.h"

#include <chrono>
#include <cmath>

namespace nearmetal {

std::string progress_text(const TrainerProgress& progress, int64_t samples_per_step,
                          SampleUnit unit) {
  const int64_t done = progress.steps_done.load();
  const int64_t first = progress.window_first_step.load();
  if (first < 0) return "warm-up: step " + std::to_string(done);
  const int64_t steps = progress.window_steps.load();
  const int64_t measured = progress.window_measured.load();
  std::string text = "step " + std::to_string(measured) + " of " + std::to_string(steps);
  const double seconds = progress.window_seconds.load();
  if (measured < 1 || seconds <= 0) return text;
  const auto steps_per_second = static_cast<double>(measured) / seconds;
  const auto rounded = [](double value) { return std::to_string(std::llround(value)); };
  return text + ", " + rounded(static_cast<double>(samples_per_step) * steps_per_second) + " " +
         words_of(unit).rate + ", " +
         rounded(static_cast<double>(steps - measured) / steps_per_second) + " s left";
}

ProgressLine::ProgressLine(std::ostream& err, const TrainerProgress& progress,
                           int64_t samples_per_step, SampleUnit unit)
    : err_(err),
      progress_(progress),
      samples_per_step_(samples_per_step),
      unit_(unit),
      thread_([this] { show(); }) {}

ProgressLine::~ProgressLine() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  over_changed_.notify_one();
  thread_.join();
}

void ProgressLine::show() {
  constexpr const char* clear_line = "\r\033[K";
  std::unique_lock lock(mutex_);
  while (!over_changed_.wait_for(lock, std::chrono::milliseconds(250), [this] { return over_; })) {
    err_ << clear_line << progress_text(progress_, samples_per_step_, unit_) << std::flush;
  }
  err_ << clear_line << std::flush;
}

}  // namespace nearmetal
