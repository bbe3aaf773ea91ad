// `nearmetal baseline add|list|show`.
#pragma once

#include <string>

#include "bench/cli/command.h"

namespace nearmetal {

/// Where all baselines are, for commands that take the name of one.
void add_baselines_option(Options& options, std::string& folder);

}  // namespace nearmetal
