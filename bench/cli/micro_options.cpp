#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "bench/cli/command_options.h"
#include "bench/cli/parse_value.h"

namespace nearmetal {
namespace {

constexpr const char* micro_examples = R"(
Examples:
  nearmetal micro                              this machine: launches, copies, products, links
  nearmetal micro copy launch/graph            those whose names match
  nearmetal micro 'step/forward/layer1'        kernels of a training step, beside their floors
  mpirun -n 4 nearmetal micro                  MPI, and NCCL between GPUs, as nccl-tests defines them
  nearmetal micro --json copy > copy.json      in the format of Google Benchmark

PROBE is a regular expression, searched in the names. Median and p99 are of single runs, or of means
of as many as are timed together where one is too short; rates follow from the median; of floor: the
least time by bytes and operations, at the copy and matrix rates measured here, as a share of the
time taken. Kernels of a step find their operands in memory, not in the cache of a GPU; those of a
CPU may find them in its caches and be faster than their floors. Exit 6 if a probe fails.)";

}  // namespace

CLI::App* add_micro_command(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("micro", "Time launches, copies, links and kernels one by one");
  command->footer(micro_examples);
  command->add_option("PROBE", line.micro.patterns, "regular expressions [all but step/]");
  add_program_options(*command, line);
  MicroForm& micro = line.micro;
  command
      ->add_option_function<std::string>(
          "--repetitions",
          [&micro](const std::string& text) {
            micro.repetitions = parse_number<int64_t>("--repetitions", text, {1, 1000});
          },
          "of each probe [3]")
      ->option_text("N");
  command
      ->add_option_function<std::string>(
          "--seconds",
          [&micro](const std::string& text) {
            micro.seconds = parse_number<double>("--seconds", text, {0.001, 3600});
          },
          "of one repetition, at least [0.1]")
      ->option_text("S");
  command->add_flag_callback(
      "--list", [&micro] { micro.list = true; }, "the names alone; those of a step: --list step/");
  command->add_flag_callback(
      "--json", [&micro] { micro.json = true; }, "as JSON, on stdout");
  return command;
}

}  // namespace nearmetal
