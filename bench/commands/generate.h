// `nearmetal generate`: shell completion and the manual page, from what all commands declare.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

Command generate_command();

}  // namespace nearmetal
