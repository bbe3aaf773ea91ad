// The small commands: version, schema, validate.
#pragma once

#include <string>

#include "bench/terminal.h"
#include "reports/exit_code.h"

namespace nearmetal {

/// Versions, commit, and each backend with its libraries or why it does not work here.
ExitCode cmd_version(const Terminal& terminal);

ExitCode cmd_schema(const Terminal& terminal);

/// Throws InvalidReport.
ExitCode cmd_validate(const std::string& path, const Terminal& terminal);

}  // namespace nearmetal
