// The networks that can be trained.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// `models`: prints a line for each network of the registry.
Command models_command();

}  // namespace nearmetal
