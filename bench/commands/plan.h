// `nearmetal plan`: what a sweep would start.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/cli/terminal.h"
#include "models/exit_code.h"

namespace nearmetal {

/// Prints or writes the plan in the form that was asked for; touches no GPU and starts nothing.
ExitCode cmd_plan(const CommandLine& line, const Terminal& terminal);

}  // namespace nearmetal
