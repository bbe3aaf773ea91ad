#include "bench/cli/process.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace nearmetal {
namespace {

void occupy_standard_descriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) >= 0) continue;
    // The lowest that is free: this one. Not for the use that is made of it.
    open("/dev/null", standard == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void shorten_path() {
  const char* path = std::getenv("PATH");
  if (path == nullptr) return;
  std::istringstream folders(path);
  std::string kept;
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.starts_with('/')) kept += (kept.empty() ? "" : ":") + folder;
  }
  // An empty one would be the current folder, too.
  kept.empty() ? unsetenv("PATH") : setenv("PATH", kept.c_str(), 1);
}

// The age of this process, by the kernel.
std::optional<double> age_seconds() {
  const auto process = process_stat("/proc/self/stat");
  timespec now{};
  if (!process || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         process->start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

void prepare_process() {
  occupy_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  shorten_path();
}

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

// Fields by their numbers in proc(5): 1 pid, 2 (name), which may hold anything, 3 state, 4 parent,
// 14 and 15 ticks of user and system, 22 start.
std::optional<ProcessStat> process_stat(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string text;
  std::getline(stream, text, '\0');  // empty, too, where the process ends meanwhile
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessStat found;
  found.name = text.substr(open + 1, close - open - 1);
  std::istringstream fields(text.substr(close + 1));
  std::string skipped;
  double user = 0, system = 0;
  fields >> skipped >> found.parent;
  for (int field = 5; field < 14; ++field) fields >> skipped;
  fields >> user >> system;
  for (int field = 16; field < 22; ++field) fields >> skipped;
  if (!(fields >> found.start_ticks)) return std::nullopt;
  found.cpu_ticks = user + system;
  return found;
}

}  // namespace nearmetal
