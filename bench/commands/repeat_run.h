// Repeats the run of a report as a fresh launch of this program.
#pragma once

#include <string>

#include "bench/cli/terminal.h"
#include "models/errors.h"
#include "reports/compare/run_set.h"
#include "reports/document/types.h"

namespace nearmetal {

/// A report whose configuration can be repeated, left with the arm that is.
struct Repeatable {
  std::string place;  // FILE or FILE#ARM
  Report report;
};

/// Throws std::invalid_argument for a report that is not of runs of one rank in one arm with a GPU
/// or machine of its own, and InvalidReport where none of them is complete.
Repeatable repeatable(const std::string& place);

/// Starts `nearmetal run` with the configuration of the report, and with exactly its plans where it
/// holds any; waits for the end, and adds the new run to `set` under the name of the arm that it
/// repeats: they are one row. Nothing recorded is executed: settings were read into types, and go
/// from there into an argument vector. The new report stays in the current folder. Throws
/// JobFailure for a run that was stopped (129, 130 or 143) or failed (6).
void add_repeat(RunSet& set, const Repeatable& repeated, bool with_steps, const Terminal& terminal);

}  // namespace nearmetal
