// What the user typed, checked.
#pragma once

#include <string>
#include <vector>

#include "reports/types.h"

namespace nearmetal {

struct CommandLine {
  enum class Command { help, version, run, schema, validate };

  Command command = Command::help;
  std::string help;  // of the command that --help followed
  std::vector<std::string> argv;
  RunConfig run;    // as typed: what depends on the device is still open
  Origins origins;  // of every setting of `run`
  std::vector<std::string> validate_files;
};

/// `arguments` begins with the name of the program. Throws std::invalid_argument with one line that
/// says what was wrong and what would be right.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace nearmetal
