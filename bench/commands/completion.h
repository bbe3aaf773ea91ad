// Shell completion of the program, from the table of its options.
#pragma once

#include <ostream>

#include "bench/cli/command_table.h"

namespace nearmetal {

/// To be sourced, or put where bash-completion looks.
void print_bash_completion(std::ostream& out, const CommandText& program);
/// A file _nearmetal for a folder of $fpath.
void print_zsh_completion(std::ostream& out, const CommandText& program);
void print_fish_completion(std::ostream& out, const CommandText& program);

}  // namespace nearmetal
