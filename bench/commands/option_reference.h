// The options of every command as a page of the documentation.
#pragma once

#include <ostream>

#include "bench/cli/command.h"

namespace nearmetal {

/// Markdown: a heading, the options in tables by group, and the examples of each command.
void print_option_reference(std::ostream& out, const Command& program);

}  // namespace nearmetal
