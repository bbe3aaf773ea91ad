// `nearmetal baseline add|list|show`.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/cli/terminal.h"
#include "models/exit_code.h"

namespace nearmetal {

/// Of `add`, each report that was added is said; the first that cannot be ends it.
ExitCode cmd_baseline(const CommandLine& line, const Terminal& terminal);

}  // namespace nearmetal
