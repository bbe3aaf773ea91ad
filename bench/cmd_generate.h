// `nearmetal generate`: shell completion and the manual page, from the table of options.
#pragma once

#include <string>

#include "bench/command_table.h"
#include "bench/terminal.h"
#include "reports/exit_code.h"

namespace nearmetal {

/// `form` is "bash", "zsh", "fish" or "man".
ExitCode cmd_generate(const std::string& form, const CommandText& program,
                      const Terminal& terminal);

}  // namespace nearmetal
