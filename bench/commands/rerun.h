// `nearmetal rerun`: the configuration of a report again, and how it compares.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// A run that fails gives its exit code.
Command rerun_command();

}  // namespace nearmetal
