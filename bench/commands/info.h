// The small commands: version, schema, validate.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// Versions, commit, and each backend with its libraries or why it does not work here.
ExitCode print_version(const Terminal& terminal);

Command schema_command();

Command validate_command();

}  // namespace nearmetal
