#include <algorithm>
#include <stdexcept>

#include "bench/cli/command_line.h"
#include "bench/commands/program.h"
#include "reports/text/nearest_word.h"

namespace nearmetal {
namespace {

constexpr const char* help_examples = R"(
Examples:
  nearmetal help                          the commands
  nearmetal help run                      all options of one, as nearmetal run --help)";

constexpr const char* version_examples = R"(
Examples:
  nearmetal version                       what nearmetal --version and -V print)";

struct HelpForm {
  std::vector<std::string> words;
};

std::vector<std::string> names_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  return names;
}

void add_help_options(Options& options, HelpForm& form) {
  options
      .values("COMMAND", " ", "Command, of two words where it has two",
              [&form](const std::vector<std::string>& words) { form.words = words; })
      .words = [] { return names_of(program().commands); };
}

struct VersionForm {};

// Help is printed before words are looked at that the parser does not know.
void require_command(const std::vector<std::string>& words) {
  std::vector<Command> commands = program().commands;
  for (const std::string& word : words) {
    const std::vector<std::string> names = names_of(commands);
    const auto found = std::ranges::find(names, word);
    if (found == names.end()) {
      throw std::invalid_argument("unknown command '" + word + "'" + did_you_mean(word, names) +
                                  " (nearmetal help)");
    }
    commands = std::vector(commands[found - names.begin()].commands);
  }
}

}  // namespace

ExitCode print_help(const std::vector<std::string>& command, const Context& context) {
  require_command(command);
  std::vector<std::string> words = {context.argv.front()};
  words.insert(words.end(), command.begin(), command.end());
  words.emplace_back("--help");
  return parse_command_line(program(), words)(context);
}

Command help_command() {
  return make_command<HelpForm>(
      "help", "Print the help of a command", help_examples, add_help_options,
      [](const HelpForm& form, const Context& context) { return print_help(form.words, context); });
}

Command version_command() {
  return make_command<VersionForm>(
      "version", "Print the versions of the program and its libraries", version_examples,
      [](Options&, VersionForm&) {},
      [](const VersionForm&, const Context& context) { return print_version(context.terminal); });
}

}  // namespace nearmetal
