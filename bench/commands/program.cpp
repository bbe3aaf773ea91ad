#include "bench/commands/program.h"

#include <iomanip>
#include <sstream>

#include "bench/cli/exit_status.h"

namespace nearmetal {
namespace {

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
  std::ostringstream text;
  for (const auto& [code, meaning] : exit_meanings()) {
    text << "  " << std::setw(3) << static_cast<int>(code) << "  " << meaning << '\n';
  }
  std::string lines = text.str();
  lines.pop_back();  // the help ends its last line itself
  return lines;
}

struct ProgramForm {
  bool version = false;
};

void declare_program(Options& options, ProgramForm& form) {
  options.toggle("-V,--version", form.version, "Versions of the program and its libraries");
}

ExitCode run_program(const ProgramForm& form, const Context& context) {
  if (form.version) return print_version(context.terminal);
  return print_help({}, context);
}

}  // namespace

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
