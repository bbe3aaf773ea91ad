// `nearmetal doctor`: looks at the machine before a run.
#pragma once

#include "bench/terminal.h"
#include "reports/exit_code.h"

namespace nearmetal {

/// Prints what was found; not_supported where something blocks runs, else ok.
ExitCode cmd_doctor(bool json, const Terminal& terminal);

}  // namespace nearmetal
