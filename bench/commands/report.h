// `nearmetal report`: runs in the forms that people and other tools read.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// To standard output, or atomically to a file.
Command report_command();

}  // namespace nearmetal
