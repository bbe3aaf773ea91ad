// The commands that judge runs: compare, gate, rerun.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/cli/terminal.h"
#include "models/exit_code.h"

namespace nearmetal {

/// Ok whatever the verdict; not_comparable where runs differ in what must agree, or no row is on
/// both sides; invalid_report where no row has complete runs on both sides.
ExitCode cmd_compare(const Judging& judging, const Terminal& terminal);

/// The answer of judge() (reports/compare/gate.h). While it is inconclusive, up to judging.reruns
/// times repeats the configuration of the first new report as a fresh launch on this machine.
ExitCode cmd_gate(const Judging& judging, const std::string& baselines_folder,
                  const Terminal& terminal);

/// Repeats the configuration of a report and compares; a run that fails gives its exit code.
ExitCode cmd_rerun(const Judging& judging, const Terminal& terminal);

}  // namespace nearmetal
