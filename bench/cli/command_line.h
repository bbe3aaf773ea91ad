// Commands as plain data, and the command line: from words to what they ask for.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/cli/options.h"
#include "bench/cli/process.h"
#include "bench/cli/terminal.h"
#include "models/errors.h"
#include "models/load_module.h"

namespace nearmetal {

using BackendLoader = std::function<Backend&(const std::string& name)>;

struct Report;

/// A command that takes the words of another program, and what it asks of a command of ours.
struct AskedBy {
  std::vector<std::string> words;                          // to ask for it, in place of argv
  std::vector<std::string> remarks;                        // on how it was asked for
  void (*print)(std::ostream& out, const Report& report);  // in place of the table
};

/// The process that a command runs in.
struct Context {
  std::vector<std::string> argv;
  Terminal terminal;
  const ProcessClock& clock;
  const std::atomic<int>& stop;  // not 0: the signal that asks for an early end
  BackendLoader load = load_backend;
  std::optional<AskedBy> asked_by{};
};

/// The action that a command line asks for. Throws what exit_code_of() maps
/// (bench/cli/exit_status.h).
using Action = std::function<ExitCode(const Context&)>;

struct Command {
  std::string name;
  std::string help;
  std::string examples;
  /// Adds its options; the action reads what they set.
  std::function<Action(Options&)> declare;
  std::vector<Command> commands;  // each is the word after this one's name
  /// For a command with the words of another program: the words after its name, as this parser
  /// reads them. Throws std::invalid_argument.
  std::vector<std::string> (*spelled_out)(const std::vector<std::string>& words) = nullptr;
};

/// A command whose options fill a `Form`.
template <class Form>
Command make_command(const std::string& name, const std::string& help, const std::string& examples,
                     void (*declare)(Options&, Form&),
                     ExitCode (*run)(const Form&, const Context&)) {
  const auto declare_and_bind = [declare, run](Options& options) -> Action {
    const auto form = std::make_shared<Form>();
    declare(options, *form);
    return [form, run](const Context& context) { return run(*form, context); };
  };
  return {name, help, examples, declare_and_bind, {}, nullptr};
}

/// The form of a command that takes no options.
struct NoForm {};

/// A command that is nothing without one of `commands`, which have the same examples. `which`: what
/// its refusal lists, such as "add or list".
Command make_group(const std::string& name, const std::string& help, const std::string& examples,
                   const std::string& which, std::vector<Command> commands);

/// The action of the command that is named, with its options set; of `program` itself where one of
/// its own options is given, or no command; or one that prints help. `arguments` begins with the
/// name of the program. Throws std::invalid_argument with one line that says what was wrong and
/// what would be right.
Action parse_command_line(const Command& program, const std::vector<std::string>& arguments);

std::vector<std::string> names_of(const std::vector<Command>& commands);

/// The options of a command that are shown, for completion and the manual; not to be set.
std::vector<OptionSpec> options_of(const Command& command);

}  // namespace nearmetal
