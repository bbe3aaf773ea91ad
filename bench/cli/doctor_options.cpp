#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "bench/cli/command_options.h"
#include "bench/cli/parse_value.h"

namespace nearmetal {

CLI::App* add_doctor_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("doctor", "Check this machine before a run");
  command->footer(R"(
Examples:
  nearmetal doctor                                 driver, libraries, GPUs, MPI, limits, ...
  nearmetal doctor layout.json                     and what that file asks for, on all its hosts
  nearmetal doctor --mig-config config.yaml#all-balanced   and whether MIG is as mig-parted's file
  nearmetal doctor --json | jq '.findings[] | select(.severity == "blocker")'

Exit 8 if something keeps runs from starting, else 0. Changes nothing; mpirun, where there is one,
starts short processes.)");
  command
      ->add_option_function<std::string>(
          "LAYOUT",
          [&line](const std::string& path) { line.doctor_layout = checked_path("LAYOUT", path); },
          "layout file: held against this machine, its hosts tried")
      ->option_text("[FILE]");
  command
      ->add_option_function<std::string>(
          "--mig-config",
          [&line](const std::string& path) {
            line.doctor_mig_config = checked_path("--mig-config", path);
          },
          "of mig-parted: whether the GPUs here are so")
      ->option_text("FILE[#LABEL]");
  command->add_flag_callback(
      "--json", [&line] { line.doctor_json = true; }, "the findings as JSON");
  return command;
}

}  // namespace nearmetal
