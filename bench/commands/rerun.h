// `nearmetal rerun`, and the repeats of a gate: the run of a report as a fresh launch of this
// program.
#pragma once

#include <optional>
#include <string>

#include "bench/cli/command_line.h"
#include "comm/launch/launch_plan.h"
#include "reports/compare/run_set.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Where a report's run is repeated, and by which build.
struct RepeatOptions {
  std::optional<std::string> hosts;
  std::optional<std::string> program;  // none: this one
};
void add_repeat_options(Options& options, RepeatOptions& repeat);

/// A report whose configuration can be repeated, left with the arm that is.
struct Repeatable {
  std::string place;  // FILE or FILE#ARM
  Report report;
  LaunchPlan plan;  // of that arm, to be started once for each repeat
};

/// Throws std::invalid_argument, beginning with `place`, for what is no file, a report of several
/// arms, and one that another build ran than would now, and what request_of_arm(),
/// make_launch_plan(), require_shares() and require_mpirun() throw; InvalidReport where none of its
/// runs is complete.
Repeatable repeatable(const std::string& place, const RepeatOptions& repeat);

/// Starts the jobs of the arm as a sweep does, with the configuration of the report; waits for the
/// end, and adds the new run to `set` under the name of the arm that it repeats: they are one row.
/// Nothing recorded is executed: settings were read into types, and go from there into an argument
/// vector. What was measured, also in part, stays in the current folder as a report. Throws
/// JobFailure for a run that was stopped (129, 130 or 143) or failed (6).
void add_repeat(RunSet& set, const Repeatable& repeated, bool with_steps, const Context& context);

}  // namespace nearmetal
