// The program with all its commands.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// Each command is a row of its list.
Command program();

}  // namespace nearmetal
