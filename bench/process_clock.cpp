#include "bench/process_clock.h"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>

namespace nearmetal {
namespace {

// Of this process, by the kernel.
std::optional<double> age_seconds() {
  std::string stat;
  std::getline(std::ifstream("/proc/self/stat"), stat);
  // Field 2, the name in brackets, may hold spaces; field 22 is the start, in ticks since boot.
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0;
  timespec now{};
  if (!(fields >> start_ticks) || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
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
