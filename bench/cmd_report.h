// `nearmetal report`: runs in the forms that people and other tools read.
#pragma once

#include "bench/command_line.h"
#include "bench/terminal.h"
#include "reports/exit_code.h"

namespace nearmetal {

/// To standard output, or atomically to a file.
ExitCode cmd_report(const ReportForm& form, const Terminal& terminal);

}  // namespace nearmetal
