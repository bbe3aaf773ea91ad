// Shell completion of the program, from what its commands declare.
#pragma once

#include <ostream>

#include "bench/cli/command_line.h"

namespace nearmetal {

/// To be sourced, or put where bash-completion looks.
void print_bash_completion(std::ostream& out, const DeclaredCommand& program);
/// A file _nearmetal for a folder of $fpath.
void print_zsh_completion(std::ostream& out, const DeclaredCommand& program);
void print_fish_completion(std::ostream& out, const DeclaredCommand& program);

}  // namespace nearmetal
