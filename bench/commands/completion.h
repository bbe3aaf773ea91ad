// Completion of command lines in shells, from what commands declare.
#pragma once

#include <ostream>

#include "bench/cli/command_line.h"

namespace nearmetal {

/// Prints a script to be sourced, or put where bash-completion looks.
void print_bash_completion(std::ostream& out, const Command& program);
/// A file _nearmetal for a folder of $fpath.
void print_zsh_completion(std::ostream& out, const Command& program);
void print_fish_completion(std::ostream& out, const Command& program);

}  // namespace nearmetal
