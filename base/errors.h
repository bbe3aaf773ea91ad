// The exit codes and exceptions of the program. Besides these exceptions std::invalid_argument is
// the user's mistake (exit code 2) and any other std::exception a failed run (6), other kinds of
// std::logic_error a bug of this program; bench/cli/process.cpp maps them all.
#pragma once

#include <array>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace nearmetal {

/// The values are part of the interface: scripts and continuous integration rely on them. An
/// interrupted program exits with 128 + the signal: 129 (SIGHUP), 130 (SIGINT) or 143 (SIGTERM).
enum class ExitCode : int {
  ok = 0,
  gate_failed = 1,
  usage = 2,           // wrong options or configuration
  inconclusive = 3,    // under a strict policy, too few runs, in doubt
  not_comparable = 4,  // or a metric or layout is missing
  invalid_report = 5,  // unreadable, invalid, or without a complete run
  run_failed = 6,      // out of memory, an error of a device or library, a wrong answer, a bug
  timed_out = 7,
  not_supported = 8,     // not on this machine: no GPU, no driver, no such backend
  output_failed = 9,     // a file or stream could not be written
  not_as_expected = 10,  // an --expect-... does not hold here
  hung_up = 129,         // SIGHUP
  interrupted = 130,     // SIGINT
  terminated = 143,      // SIGTERM
};

/// Thrown for what this build or this machine cannot do (exit code 8).
struct NotSupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The driver does not take the CUDA that this program was built for.
struct DriverTooOld : NotSupported {
  DriverTooOld(const std::string& what, std::string remedy)
      : NotSupported(what), fix(std::move(remedy)) {}
  std::string fix;
};

/// Thrown for a part that was left out of the build.
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

/// What operator new throws in this program (6).
struct NotEnoughMemory : std::bad_alloc {
  const char* what() const noexcept override {
    return "not enough memory: it is limited by what is free, ulimit -v and the cgroup's "
           "memory.max";
  }
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

/// Machine-readable cause of a failed job: which expectation of `nearmetal run` does not hold, by
/// the name of its option, or that the work does not fit into the memory.
enum class FailureCode {
  expect_gpu,
  expect_uuid,
  expect_mig,
  expect_vgpu,
  expect_environment,
  expect_link,
  expect_hosts,
  expect_cpus,
  out_of_memory
};
constexpr auto names_of(FailureCode) {
  return std::array{"expect-gpu",   "expect-uuid",        "expect-mig",
                    "expect-vgpu",  "expect-environment", "expect-link",
                    "expect-hosts", "expect-cpus",        "out-of-memory"};
}

/// Thrown where a rank does not find what it is told to expect (10).
struct NotAsExpected : std::invalid_argument {
  NotAsExpected(FailureCode expected, const std::string& what)
      : std::invalid_argument(what), code(expected) {}
  FailureCode code;
};

/// Thrown on every rank of a job where the work of one of them failed, with that rank's codes, or
/// where the job is stopped.
struct JobFailure : std::runtime_error {
  JobFailure(const std::string& what, ExitCode exit, bool already_reported,
             std::optional<FailureCode> failure = {})
      : std::runtime_error(what), exit_code(exit), reported(already_reported), code(failure) {}
  ExitCode exit_code;
  bool reported;  // to the user, by another rank or already: one line is printed, not one per rank
  std::optional<FailureCode> code;

  bool is_stop() const { return exit_code >= ExitCode::hung_up; }
};

/// For what measures before the first step: throws JobFailure where the signal is not 0.
inline void throw_if_stopped(int signal) {
  if (signal != 0) throw JobFailure("interrupted", static_cast<ExitCode>(128 + signal), true);
}

}  // namespace nearmetal
