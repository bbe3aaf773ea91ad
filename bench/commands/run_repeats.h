// `nearmetal run --repeats`: a sweep over one process.
#pragma once

#include <cstdint>
#include <optional>

#include "bench/cli/command.h"
#include "bench/cli/run_request.h"
#include "bench/sweep/sweep_runs.h"

namespace nearmetal {

struct RunForm {
  RunRequest request;
  std::optional<int64_t> repeats;
  ResumeOptions resume;

  bool asks_for_repeats() const {
    return repeats || resume.journal || resume.keep_failed || resume.any_build;
  }
};

/// The options of a run, and of its repeats.
void add_repeated_run_options(Options& options, RunForm& form);

/// Each repeat is a process as this one would have been, as a sweep starts them. Signals must be
/// caught already.
ExitCode run_repeats(const RunForm& form, const Context& context);

}  // namespace nearmetal
