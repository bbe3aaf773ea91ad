// `nearmetal report`: runs in the forms that people and other tools read.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/cli/terminal.h"
#include "models/exit_code.h"

namespace nearmetal {

/// To standard output, or atomically to a file.
ExitCode cmd_report(const ReportForm& form, const Terminal& terminal);

}  // namespace nearmetal
