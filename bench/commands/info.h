// The small commands: version, schema, validate.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/terminal.h"
#include "models/exit_code.h"

namespace nearmetal {

/// Versions, commit, and each backend with its libraries or why it does not work here.
ExitCode cmd_version(const Terminal& terminal);

/// `name`: report or comparison.
ExitCode cmd_schema(const std::string& name, const Terminal& terminal);

/// One line for each file; those that are not valid on the side of errors.
ExitCode cmd_validate(const std::vector<std::string>& paths, const Terminal& terminal);

}  // namespace nearmetal
