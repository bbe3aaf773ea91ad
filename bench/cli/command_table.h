// The commands and options of the program as plain data, for completion and the manual.
#pragma once

#include <string>
#include <vector>

namespace nearmetal {

struct OptionText {
  std::vector<std::string> names;  // "-h", "--help"; none: an argument without a flag
  std::string value;               // "N", "FILE", "graph|stream"; empty: it takes none
  std::string help;
  std::string group;
};

struct CommandText {
  std::string name;
  std::string help;
  std::string footer;  // examples
  std::vector<OptionText> options;
  std::vector<CommandText> commands;
};

/// The program itself; from the same declarations that parse the command line.
CommandText command_table();

}  // namespace nearmetal
