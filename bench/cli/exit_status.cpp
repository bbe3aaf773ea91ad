#include "bench/cli/exit_status.h"

#include <stdexcept>

#include "models/errors.h"

namespace nearmetal {
namespace {

template <class Error>
bool is(const std::exception& error) {
  return dynamic_cast<const Error*>(&error) != nullptr;
}

}  // namespace

ExitCode exit_code_of(const std::exception& error) {
  if (const auto* job = dynamic_cast<const JobFailure*>(&error)) return job->exit_code;
  if (is<std::invalid_argument>(error)) return ExitCode::usage;
  if (is<NotComparable>(error)) return ExitCode::not_comparable;
  if (is<InvalidReport>(error)) return ExitCode::invalid_report;
  if (is<NotSupported>(error)) return ExitCode::not_supported;
  if (is<OutputError>(error)) return ExitCode::output_failed;
  return ExitCode::run_failed;
}

bool is_to_be_told(const std::exception& error) {
  const auto* job = dynamic_cast<const JobFailure*>(&error);
  return job == nullptr || !job->told;
}

ExitCode exit_code_of_signal(int signal) { return static_cast<ExitCode>(128 + signal); }

}  // namespace nearmetal
