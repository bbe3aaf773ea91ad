// `nearmetal doctor`: looks at the machine before a run.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/cli/terminal.h"
#include "models/exit_code.h"

namespace nearmetal {

/// Prints what was found; not_supported where something blocks runs, else ok. Throws what
/// read_layout() does.
ExitCode cmd_doctor(const CommandLine& line, const Terminal& terminal);

}  // namespace nearmetal
