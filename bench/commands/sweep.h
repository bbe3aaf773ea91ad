// `nearmetal sweep`, and what else makes several runs into one report.
#pragma once

#include <optional>
#include <string>

#include "bench/cli/command_line.h"
#include "bench/sweep/make_launch_plan.h"
#include "bench/sweep/sweep_runs.h"
#include "reports/sharing/cost.h"

namespace nearmetal {

struct SweepForm {
  PlanRequest request;
  ResumeOptions resume;
  std::optional<std::string> output;
  CostRequest costs{};
  bool force = false;
  bool json = false;             // the report on stdout, in place of the table
  bool only_named_file = false;  // no report but in `output`
};

/// --resume and what else says which runs are taken.
void add_resume_options(Options& options, ResumeOptions& resume);

/// Runs what the form asks for: each run is in the journal when the next one starts. Signals must
/// be caught already (catch_stop_signals()).
ExitCode run_sweep(const SweepForm& form, const Context& context);

}  // namespace nearmetal
