// Options as a command line sets them, without a command.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/cli/run_request.h"

namespace nearmetal {

/// Sets options by words that might follow `nearmetal COMMAND`. Throws as parse_command_line().
inline void parse_options(const char* command, const std::function<void(Options&)>& declare,
                          const std::vector<std::string>& words) {
  const auto nothing = [](Options&) { return Action(); };
  const auto declare_alone = [&](Options& options) {
    declare(options);
    return Action();
  };
  const Command program{
      "nearmetal", "", "", nothing, {Command{command, "", "", declare_alone, {}}}};
  std::vector<std::string> arguments = {program.name, command};
  arguments.insert(arguments.end(), words.begin(), words.end());
  parse_command_line(program, arguments);
}

/// `flags` are those that may follow `nearmetal run`.
inline RunRequest parse_run_flags(const std::vector<std::string>& flags) {
  RunRequest request;
  parse_options(
      "run", [&](Options& options) { add_run_options(options, request); }, flags);
  return request;
}

}  // namespace nearmetal
