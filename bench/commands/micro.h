// `nearmetal micro`: times what a training step is made of, one thing at a time.
#pragma once

#include "bench/commands/run.h"

namespace nearmetal {

/// Prints a line for each probe whose name matches. Throws std::invalid_argument where none does.
ExitCode cmd_micro(const CommandLine& line, const Terminal& terminal,
                   const BackendLoader& load = load_backend);

}  // namespace nearmetal
