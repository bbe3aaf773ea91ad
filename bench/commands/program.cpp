#include "bench/commands/program.h"

#include <algorithm>
#include <iomanip>
#include <stdexcept>

#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/sweep/make_launch_plan.h"
#include "comm/layout/shell_text.h"

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

3. Measure both sides by turns, on three days or after restarts, which differ in heat and neighbours.
  nearmetal sweep bare_metal.json --repeats 3 --output bare_metal_1.json
  nearmetal sweep vms.json --repeats 3 --output vms_1.json
  nearmetal sweep bare_metal.json --repeats 3 --output bare_metal_2.json
  nearmetal sweep vms.json --repeats 3 --output vms_2.json
  nearmetal sweep bare_metal.json --repeats 3 --output bare_metal_3.json
  nearmetal sweep vms.json --repeats 3 --output vms_3.json

4. Bring the reports together; any way of copying does.
  nearmetal validate bare_metal_1.json bare_metal_2.json bare_metal_3.json vms_1.json vms_2.json vms_3.json

5. Compare: a page with charts, and the table to paste.
  nearmetal compare --bare bare_metal_1.json bare_metal_2.json bare_metal_3.json \
    --vm vms_1.json vms_2.json vms_3.json --html vms.html
  nearmetal compare --bare bare_metal_1.json bare_metal_2.json bare_metal_3.json \
    --vm vms_1.json vms_2.json vms_3.json --markdown
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

void add_help_options(Options& options, std::vector<std::string>& command) {
  options.values("COMMAND", " ", "command, such as run or baseline add; or the topic vm", command)
      .words = [] {
    std::vector<std::string> names = transformed(program().commands, &Command::name);
    names.emplace_back(vm_topic);
    return names;
  };
}

// Help is printed before words are looked at that the parser does not know.
void require_command(const std::vector<std::string>& words) {
  std::vector<Command> commands = program().commands;
  for (const std::string& word : words) {
    const std::vector<std::string> names = transformed(commands, &Command::name);
    const auto found = std::ranges::find(names, word);
    if (found == names.end()) {
      throw std::invalid_argument("unknown command '" + word + "'" + did_you_mean(word, names) +
                                  " (nearmetal help)");
    }
    commands = std::vector(commands[found - names.begin()].commands);
  }
}

ExitCode print_help(const std::vector<std::string>& command, const Context& context) {
  require_command(command);
  std::vector<std::string> words = {context.argv.front()};
  words.insert(words.end(), command.begin(), command.end());
  words.emplace_back("--help");
  return parse_command_line(program(), words)(context);
}

ExitCode run_help(const std::vector<std::string>& command, const Context& context) {
  if (command != std::vector<std::string>{vm_topic}) return print_help(command, context);
  context.terminal.out << vm_steps_here();
  return ExitCode::ok;
}

constexpr const char* program_examples = R"(
Examples:
  nearmetal run                           train on the GPU, or the CPU where there is none
  nearmetal run --batch 512 --verify      a larger batch, and proof that the network learns
  nearmetal plan 1x1x2 --format sh        a script for one job on two GPUs
  nearmetal compare --base old*.json --new new*.json
                                          the difference, with an interval and a verdict
  nearmetal baseline add main old*.json   keep runs to compare later ones with
  nearmetal gate main new*.json           exit 1 if they are shown to be slower
  nearmetal help run                      all options of a command

Exit codes:
)";

std::string exit_codes_text() {
  TextStream text;
  for (const auto& [code, meaning] : exit_meanings()) {
    text << "  " << std::setw(3) << static_cast<int>(code) << "  " << meaning << '\n';
  }
  std::string lines = text.str();
  lines.pop_back();  // the help ends its last line itself
  return lines;
}

void declare_program(Options& options, bool& version) {
  options.toggle("-V,--version", version, "Versions of the program and its libraries");
}

ExitCode run_program(const bool& version, const Context& context) {
  return version ? print_version(context.terminal) : print_help({}, context);
}

}  // namespace

Command help_command() {
  return make_command("help", "Print the help of a command", help_examples, add_help_options,
                      run_help);
}

Command program() {
  Command program = make_command(
      "nearmetal",
      "Trains a real network on synthetic data and reports how fast the machine does it.",
      program_examples + exit_codes_text(), declare_program, run_program);
  program.commands = {
      run_command(),      export_command(),   compare_command(), gate_command(),
      baseline_command(), rerun_command(),    report_command(),  import_command(),
      plan_command(),     sweep_command(),    micro_command(),   stress_command(),
      doctor_command(),   validate_command(), schema_command(),  generate_command(),
      models_command(),   help_command(),     version_command(), tf_cnn_benchmarks_command(),
  };
  return program;
}

}  // namespace nearmetal
