// How the process ends: exit codes of errors, in the one place that maps them, and signals.
#pragma once

#include <atomic>
#include <exception>
#include <span>

#include "models/errors.h"

namespace nearmetal {

ExitCode exit_code_of(const std::exception& error);

struct ExitMeaning {
  ExitCode code;
  const char* meaning;
};
/// The meaning of each code, for the help and the manual.
std::span<const ExitMeaning> exit_meanings();

/// Whether this process is the one to tell the user: of a job's failure, one rank is.
bool should_report(const std::exception& error);

/// The exit code of a program that stopped because of this signal.
ExitCode exit_code_of_signal(int signal);

/// The first signal that arrived, 0 before.
extern std::atomic<int> stop_signal;

/// The remark of a process that has caught a signal.
constexpr const char* stop_remark = "stopping after this step; once more stops at once";

/// From now on the first SIGINT or SIGTERM sets stop_signal, so that what was measured can still be
/// written; a second one ends the process at once. To be called before other threads start: they
/// inherit that the two are blocked.
void catch_stop_signals();

}  // namespace nearmetal
