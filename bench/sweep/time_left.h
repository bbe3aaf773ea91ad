// How long a sweep still takes, by the runs that are through.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace nearmetal {

class TimeLeft {
 public:
  /// `left`: runs that are still to be made, this one among them.
  void begin_run(int64_t left);
  void end_run();
  /// ", about 4 min left"; empty before a run is through.
  std::string text() const;

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point begin_;
  std::chrono::duration<double> finished_{};  // all runs together
  int64_t runs_ = 0;
  int64_t left_ = 0;
};

}  // namespace nearmetal
