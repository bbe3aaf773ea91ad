// This process: its first steps, when it started, and what the kernel shows of it and of others.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

namespace nearmetal {

/// Opens those of the descriptors 0 to 2 that are closed, so that no file takes their place and
/// what is meant for a terminal; what is written to them still fails. Makes a reader that went away
/// and a file that may not grow errors of the write. Takes relative and empty elements, which mean
/// the current folder, out of PATH: no program comes from there, for children neither.
void prepare_process();

/// Made in the first line of main(). The kernel's start time of the process (/proc/self/stat, in
/// hundredths of a second) counts the loading of the executable in; where it cannot be read or
/// makes no sense, time counts from the making of this object, and `clock()` says so.
class ProcessClock {
 public:
  ProcessClock();

  double seconds_at(std::chrono::steady_clock::time_point time) const;
  double elapsed_seconds() const { return seconds_at(std::chrono::steady_clock::now()); }
  /// When this object was made.
  double start_seconds() const { return start_seconds_; }
  const std::string& clock() const { return clock_; }

 private:
  std::chrono::steady_clock::time_point made_;
  double start_seconds_ = 0;
  std::string clock_;
};

struct ProcessStat {
  std::string name;
  int parent = 0;
  double cpu_ticks = 0;    // used so far, of user and system
  double start_ticks = 0;  // since boot
};

/// None where the file is not there or holds something else.
std::optional<ProcessStat> process_stat(const std::filesystem::path& file);

}  // namespace nearmetal
