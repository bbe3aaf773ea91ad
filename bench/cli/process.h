// This process: its first steps, when it started, what the kernel shows of it and of others, and
// how it ends.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/errors.h"
#include "reports/document/types.h"

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

  double seconds_at(std::chrono::steady_clock::time_point time) const {
    return start_seconds_ + std::chrono::duration<double>(time - made_).count();
  }
  double elapsed_seconds() const { return seconds_at(std::chrono::steady_clock::now()); }
  /// When this object was made.
  double start_seconds() const { return start_seconds_; }
  const std::string& clock() const { return clock_; }

 private:
  std::chrono::steady_clock::time_point made_;
  double start_seconds_ = 0;
  std::string clock_;
};

/// Version, commit, build type, compiler and build ID; the commit is looked up at every build,
/// which writes the source of this.
Tool build_info();

/// Hash of what the linker says of the content of this executable and of each module that it would
/// load (their GNU build IDs); none where it says nothing.
std::optional<std::string> own_build_id();

struct ProcessStat {
  std::string name;
  int parent = 0;
  double cpu_ticks = 0;    // used so far, of user and system
  double start_ticks = 0;  // since boot
};

/// None where the file is not there or holds something else.
std::optional<ProcessStat> process_stat(const std::filesystem::path& file);

// How it ends: exit codes of errors, in the one place that maps them, and signals.

ExitCode exit_code_of(const std::exception& error);

/// What a user is told of an error: what() of those that were written for it; what limits memory,
/// threads and processes where there are no more; else that this is a bug.
std::string message_of(const std::exception& error);

/// Says on standard error why this process ends, of several threads that do the first alone. Needs
/// no memory for that where there is none.
void tell(const std::exception& error);

struct ExitMeaning {
  ExitCode code;
  const char* meaning;
};
/// The meaning of each code, for the help and the manual.
std::span<const ExitMeaning> exit_meanings();

/// Whether this process is the one to tell the user: of a job's failure, one rank is.
bool should_report(const std::exception& error);

/// The exit code of a program that stopped because of this signal.
constexpr ExitCode exit_code_of_signal(int signal) { return static_cast<ExitCode>(128 + signal); }

/// The exit code of a report. A complete one has that of `failure`, ok if there is none. A partial
/// one has the code of the signal; terminated where another process got it (signal 0). A failed one
/// has that of `failure`, run_failed if there is none.
ExitCode exit_code_of(Status status, ExitCode failure, int signal);

/// The first signal that arrived, 0 before.
extern std::atomic<int> stop_signal;

/// Whether operator new has failed. Streams keep that to themselves: what they read or wrote may
/// lack parts.
extern std::atomic<bool> memory_ran_out;

/// The remark of a process that has caught a signal.
constexpr const char* stop_remark = "stopping after this step; once more stops at once";

/// From now on the first SIGINT or SIGTERM sets stop_signal, so that what was measured can still be
/// written; one that comes more than a second later ends the process at once. To be called before
/// other threads start: they inherit that the two are blocked.
void catch_stop_signals();

}  // namespace nearmetal
