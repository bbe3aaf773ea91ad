// `nearmetal generate`: shell completion and the manual page, from the table of options.
#pragma once

#include <string>

#include "bench/cli/command_table.h"
#include "bench/cli/terminal.h"
#include "models/exit_code.h"

namespace nearmetal {

/// `form` is "bash", "zsh", "fish" or "man".
ExitCode cmd_generate(const std::string& form, const CommandText& program,
                      const Terminal& terminal);

}  // namespace nearmetal
