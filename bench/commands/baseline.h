// `nearmetal baseline add|list|show`.
#pragma once

#include <string>

#include "bench/cli/command.h"

namespace nearmetal {

/// Of `add`, each report that was added is said; the first that cannot be ends it.
Command baseline_command();

/// Where all baselines are, for commands that take the name of one.
void add_baselines_option(Options& options, std::string& folder);

}  // namespace nearmetal
