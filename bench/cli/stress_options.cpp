#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <stdexcept>

#include "bench/cli/command_options.h"
#include "bench/cli/parse_value.h"

namespace nearmetal {
namespace {

constexpr double least_seconds = 0.001;

constexpr const char* stress_examples = R"(
Examples:
  nearmetal stress copy                        the GPU's memory, or the host's without a GPU
  nearmetal stress compute --seconds 60        matrix products
  nearmetal stress pcie --gpu 1                from pinned host memory to GPU 1
  nearmetal stress copy & nearmetal run        what a neighbour costs; better measured by
  nearmetal sweep --fractions 2 --neighbours copy

LOAD is copy, compute, pcie, or the name of a probe of `nearmetal micro --list`. Ctrl-C ends it, and
the rate so far is told.)";

}  // namespace

CLI::App* add_stress_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("stress", "Keep a device busy, as a noisy neighbour does");
  command->footer(stress_examples);
  StressForm& form = line.stress;
  command->add_option("LOAD", form.load, "copy, compute, pcie or a probe of micro")->required();
  add_device_options(*command, line);
  command
      ->add_option_function<std::string>(
          "--seconds",
          [&form](const std::string& text) {
            form.seconds = parse_duration("--seconds", text);
            if (form.seconds < least_seconds) {
              throw std::invalid_argument("--seconds must be at least 0.001, not '" + text + "'");
            }
          },
          "how long [10]")
      ->option_text("S");
  command->add_flag("--json", form.json, "the rate as JSON, on stdout");
  add_conducted_options(*command, line);
  return command;
}

}  // namespace nearmetal
