#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "bench/command_options.h"

namespace nearmetal {

CLI::App* add_doctor_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("doctor", "Check this machine before a run");
  command->footer(R"(
Examples:
  nearmetal doctor                                 driver, libraries, GPUs, MPI, limits, ...
  nearmetal doctor --json | jq '.findings[] | select(.severity == "blocker")'

Exit 8 if something keeps runs from starting, else 0. Changes nothing; mpirun, where there is one,
starts two short processes.)");
  command->add_flag_callback(
      "--json", [&line] { line.doctor_json = true; }, "the findings as JSON");
  return command;
}

}  // namespace nearmetal
