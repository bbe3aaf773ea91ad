// `nearmetal micro`: times what a training step is made of, one thing at a time.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// Prints a line for each probe whose name matches; std::invalid_argument where none does.
Command micro_command();

}  // namespace nearmetal
