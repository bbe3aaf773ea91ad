// Repeats the run of a report as a fresh launch of this program.
#pragma once

#include <string>

#include "bench/cli/terminal.h"
#include "models/exit_code.h"
#include "reports/document/types.h"

namespace nearmetal {

struct RepeatedRun {
  ExitCode exit_code = ExitCode::ok;
  std::string report;  // its file, in the current folder
};

/// Throws std::invalid_argument for a report that is not of runs of one rank in one arm with a GPU
/// or machine of its own, and InvalidReport where none of them is complete. `source` is its file,
/// or FILE#ARM where `report` is left with that arm.
void require_repeatable(const Report& report, const std::string& source);

/// Starts `nearmetal run` with the configuration of `report`, which lies in `source`, and with
/// exactly its plans where it holds any; waits for the end. Nothing recorded is executed: settings
/// were read into types, and go from there into an argument vector. Throws as above.
RepeatedRun repeat_run(const Report& report, const std::string& source, const Terminal& terminal);

}  // namespace nearmetal
