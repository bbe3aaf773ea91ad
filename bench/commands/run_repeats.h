// `nearmetal run --repeats`: a sweep over one process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/cli/command.h"
#include "bench/cli/run_request.h"

namespace nearmetal {

struct RunForm {
  RunRequest request;
  std::optional<int64_t> repeats;
  std::optional<std::string> resume;  // a journal of repeats

  bool asks_for_repeats() const { return repeats || resume; }
};

/// Those of a run, and of its repeats.
void add_repeated_run_options(Options& options, RunForm& form);

/// Each a process as this one would have been, as a sweep starts them. Signals must be caught
/// already.
ExitCode run_repeats(const RunForm& form, const Context& context);

}  // namespace nearmetal
