// The exit codes of the program: documented, tested, never reused.
#pragma once

namespace nearmetal {

/// The values are part of the interface: scripts and continuous integration rely on them. An
/// interrupted program exits with 128 + the signal: 130 (SIGINT) or 143 (SIGTERM).
enum class ExitCode : int {
  ok = 0,
  gate_failed = 1,
  usage = 2,           // wrong options or configuration
  inconclusive = 3,    // under a strict policy, or too few runs
  not_comparable = 4,  // or a metric or layout is missing
  invalid_report = 5,  // unreadable, invalid, or without a complete run
  run_failed = 6,      // out of memory, an error of a device or library, a wrong answer
  timed_out = 7,
  not_supported = 8,  // not on this machine: no GPU, no driver, no such backend
  output_failed = 9,  // a file or stream could not be written
  interrupted = 130,  // SIGINT
  terminated = 143,   // SIGTERM
};

}  // namespace nearmetal
