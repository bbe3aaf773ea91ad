#include "bench/environment/process_clock.h"

#include <time.h>
#include <unistd.h>

#include <optional>

#include "bench/environment/process_stat.h"

namespace nearmetal {
namespace {

// Of this process, by the kernel.
std::optional<double> age_seconds() {
  const auto process = process_stat("/proc/self/stat");
  timespec now{};
  if (!process || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         process->start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

ProcessClock::ProcessClock() : made_(std::chrono::steady_clock::now()) {
  const std::optional<double> age = age_seconds();
  // Ticks are rounded down, so that the age is never below 0. A minute to reach main() would be a
  // clock that does not fit, as in a sandbox with its own idea of boot time.
  const bool plausible = age && *age >= 0 && *age < 60;
  start_seconds_ = plausible ? *age : 0;
  clock_ = plausible ? "start of the process (/proc/self/stat)" : "first line of the program";
}

double ProcessClock::seconds_at(std::chrono::steady_clock::time_point time) const {
  return start_seconds_ + std::chrono::duration<double>(time - made_).count();
}

}  // namespace nearmetal
