// The command line: from words to what they ask for, by what commands declare.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "bench/cli/command.h"

namespace nearmetal {

/// The action of the command that is named, with its options set; of `program` itself where one of
/// its own options is given, or no command; or one that prints help. `arguments` begins with the
/// name of the program. Throws std::invalid_argument with one line that says what was wrong and
/// what would be right.
Action parse_command_line(const Command& program, const std::vector<std::string>& arguments);

/// The options of a command that are shown, for completion and the manual; not to be set.
std::vector<OptionSpec> options_of(const Command& command);

/// Prints a script to be sourced, or put where bash-completion looks.
void print_bash_completion(std::ostream& out, const Command& program);
/// A file _nearmetal for a folder of $fpath.
void print_zsh_completion(std::ostream& out, const Command& program);
void print_fish_completion(std::ostream& out, const Command& program);

}  // namespace nearmetal
