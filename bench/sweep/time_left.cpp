#include "bench/sweep/time_left.h"

#include <algorithm>

#include "reports/text/text.h"

namespace nearmetal {

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

}  // namespace nearmetal
