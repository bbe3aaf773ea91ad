#include "bench/cli/exit_status.h"

#include <signal.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "models/errors.h"

namespace nearmetal {
namespace {

template <class Error>
bool is(const std::exception& error) {
  return dynamic_cast<const Error*>(&error) != nullptr;
}

// sigwait() takes what is ignored, too.
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

ExitCode exit_code_of(const std::exception& error) {
  if (const auto* job = dynamic_cast<const JobFailure*>(&error)) return job->exit_code;
  if (is<NotAsExpected>(error)) return ExitCode::not_as_expected;
  if (is<std::invalid_argument>(error)) return ExitCode::usage;
  if (is<NotComparable>(error)) return ExitCode::not_comparable;
  if (is<InvalidReport>(error)) return ExitCode::invalid_report;
  if (is<NotSupported>(error)) return ExitCode::not_supported;
  if (is<OutputError>(error)) return ExitCode::output_failed;
  return ExitCode::run_failed;
}

std::span<const ExitMeaning> exit_meanings() {
  using enum ExitCode;
  static constexpr ExitMeaning meanings[] = {
      {ok, "ok"},
      {gate_failed, "gate: shown to be worse, or changed under --fail-on any"},
      {usage, "wrong options or configuration"},
      {inconclusive, "gate: inconclusive under a strict policy, or too few runs"},
      {not_comparable, "not comparable, a metric or layout is missing, or a run was disturbed"},
      {invalid_report, "report unreadable or invalid, or without a complete run"},
      {run_failed,
       "the run failed: out of memory, an error of a device or library, a wrong answer"},
      {timed_out, "sweep: a job took longer than its limits"},
      {not_supported, "not supported here: no GPU, driver, backend or mpirun"},
      {output_failed, "output could not be written"},
      {not_as_expected, "the machine is not as --expect-... says"},
      {hung_up, "hung up"},
      {interrupted, "interrupted"},
      {terminated, "terminated"},
  };
  return meanings;
}

bool should_report(const std::exception& error) {
  const auto* job = dynamic_cast<const JobFailure*>(&error);
  return job == nullptr || !job->told;
}

ExitCode exit_code_of_signal(int signal) { return static_cast<ExitCode>(128 + signal); }

std::atomic<int> stop_signal = 0;

void catch_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (!is_ignored(SIGHUP)) sigaddset(&signals, SIGHUP);  // as under nohup
  // A thread waits for them, all others block them: generated code of libraries may use the stack
  // pointer for other things, so that a handler on top of it would write where it must not.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) return;
    stop_signal.store(signal);
    const std::string text = std::string("\n") + stop_remark + "\n";
    // A message that does not get out is no loss.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // the next one does what it always does
    while (true) pause();
  }).detach();
}

}  // namespace nearmetal
