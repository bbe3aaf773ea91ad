// The exceptions of the program. Besides them std::invalid_argument is the user's mistake (exit
// code 2) and any other std::exception a failed run (6); bench/cli/exit_status.cpp maps them all.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "models/exit_code.h"

namespace nearmetal {

/// Thrown for what this build or this machine cannot do (exit code 8).
struct NotSupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Of what was left out of the build.
struct NotBuilt : NotSupported {
  using NotSupported::NotSupported;
};

/// Thrown where the device's memory does not suffice.
struct OutOfMemory : std::runtime_error {
  OutOfMemory(const std::string& what, int64_t needed, int64_t free, int64_t largest_batch)
      : std::runtime_error(what),
        needed_bytes(needed),
        free_bytes(free),
        largest_batch_size(largest_batch) {}
  int64_t needed_bytes;
  int64_t free_bytes;
  int64_t largest_batch_size;  // 0: not even one image
};

/// Thrown for a report that cannot be read: not there, not JSON, or not what the schema says (5).
struct InvalidReport : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs did different work, so that one value for all of them would be of nothing (4).
struct NotComparable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown where a file cannot be written (9); the message says which and why.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown on every rank of a job where the work of one of them failed, with that rank's exit code.
struct JobFailure : std::runtime_error {
  JobFailure(const std::string& what, ExitCode code, bool is_told)
      : std::runtime_error(what), exit_code(code), told(is_told) {}
  ExitCode exit_code;
  bool told;  // to the user, by another rank or already: one line is printed, not one per rank
};

}  // namespace nearmetal
