#include <algorithm>
#include <stdexcept>

#include "bench/cli/command_line.h"
#include "bench/commands/program.h"
#include "bench/sweep/shipped_layouts.h"
#include "comm/layout/shell_text.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr const char* help_examples = R"(
Examples:
  nearmetal help                          the commands
  nearmetal help run                      all options of one, as nearmetal run --help
  nearmetal help vm                       a VM against bare metal, in five steps)";

// docs/vm_against_bare_metal.md has the same commands.
constexpr const char* vm_steps =
    R"(A VM against bare metal, in five steps (docs/vm_against_bare_metal.md)

1. Say what both sides are: your names, addresses and numbers of GPUs. Layouts are matched by name.
  cp %dell_bare_metal% bare_metal.json
  cp %dell_vms% vms.json

2. Check each side for what keeps runs from starting.
  nearmetal doctor bare_metal.json
  nearmetal doctor vms.json

3. Measure both sides alternately if you can: heat, drivers and neighbours change from day to day.
  nearmetal sweep bare_metal.json --output bare_metal_1.json
  nearmetal sweep vms.json --output vms_1.json
  nearmetal sweep bare_metal.json --output bare_metal_2.json
  nearmetal sweep vms.json --output vms_2.json

4. Bring the reports together; any way of copying does.
  nearmetal validate bare_metal_1.json bare_metal_2.json vms_1.json vms_2.json

5. Compare: a page with charts, and the table to paste.
  nearmetal compare --bare bare_metal_1.json bare_metal_2.json --vm vms_1.json vms_2.json \
    --html vms.html
  nearmetal compare --bare bare_metal_1.json bare_metal_2.json --vm vms_1.json vms_2.json \
    --markdown
)";
constexpr const char* vm_topic = "vm";

// The steps with the layouts where these came with this program.
std::string vm_steps_here() {
  std::string text = vm_steps;
  for (const std::string name : {"dell_bare_metal", "dell_vms"}) {
    text = replaced(text, "%" + name + "%", shell_quoted(shipped_layout_file(name)));
  }
  return text;
}

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
      .values("COMMAND", " ", "command, such as run or baseline add; or the topic vm",
              [&form](const std::vector<std::string>& words) { form.words = words; })
      .words = [] {
    std::vector<std::string> names = names_of(program().commands);
    names.emplace_back(vm_topic);
    return names;
  };
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
  return make_command<HelpForm>("help", "Print the help of a command", help_examples,
                                add_help_options, [](const HelpForm& form, const Context& context) {
                                  if (form.words != std::vector<std::string>{vm_topic})
                                    return print_help(form.words, context);
                                  context.terminal.out << vm_steps_here();
                                  return ExitCode::ok;
                                });
}

Command version_command() {
  return make_command<VersionForm>(
      "version", "Print the versions of the program and its libraries", version_examples,
      [](Options&, VersionForm&) {},
      [](const VersionForm&, const Context& context) { return print_version(context.terminal); });
}

}  // namespace nearmetal
