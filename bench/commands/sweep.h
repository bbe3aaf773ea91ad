// `nearmetal sweep`, and what else makes several runs into one report.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "bench/cli/command_line.h"
#include "bench/sweep/make_launch_plan.h"
#include "bench/sweep/sweep_runs.h"
#include "reports/sharing/cost.h"

namespace nearmetal {

/// What makes a sweep a part of another command.
struct Purpose {
  const char* name = "";  // in that of its report
  /// Whether a launch is wanted, by the runs so far.
  std::function<bool(const LaunchPlan&, const Launch&, const std::vector<JournalEntry>&)> wants;
  /// Adds to the report what its runs mean; the exit code where all of them were complete.
  std::function<ExitCode(Report&)> conclude;
  /// In place of the table; where JSON is asked for, too.
  std::function<void(const Report&, const Terminal&)> print;
};

struct SweepForm {
  PlanRequest request;
  ResumeOptions resume;
  std::optional<std::string> output;
  CostRequest costs{};
  bool force = false;
  bool json = false;             // the report on stdout, in place of the table
  bool only_named_file = false;  // no report but in `output`
  std::optional<Purpose> purpose{};
};

/// --resume and what else says which runs are taken.
void add_resume_options(Options& options, ResumeOptions& resume);

/// --output and what else says where a sweep writes.
void add_sweep_output_options(Options& options, SweepForm& form);

/// Throws std::invalid_argument in a process that a launcher started.
void require_no_launcher(const char* command);

/// Runs what the form asks for: each run is in the journal when the next one starts. Signals must
/// be caught already (catch_stop_signals()).
ExitCode run_sweep(const SweepForm& form, const Context& context);

}  // namespace nearmetal
