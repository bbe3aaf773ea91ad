// `nearmetal doctor`: looks at the machine before a run.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// Prints what was found; not_supported where something blocks runs, else ok. Throws what
/// read_layout() does.
Command doctor_command();

}  // namespace nearmetal
