// The options of each command, tied to where their values go.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/cli/options.h"

namespace CLI {
class App;
}

namespace nearmetal {

/// Adds the options to a command, which keeps copies of them.
void add_to(CLI::App& command, const Options& options);

// Each adds its command to `app`; parsing then fills `line`, which must stay where it is. Wrong
// values are std::invalid_argument.

CLI::App* add_run_command(CLI::App& app, CommandLine& line);
CLI::App* add_export_command(CLI::App& app, CommandLine& line);
CLI::App* add_compare_command(CLI::App& app, CommandLine& line);
CLI::App* add_gate_command(CLI::App& app, CommandLine& line);
CLI::App* add_baseline_command(CLI::App& app, CommandLine& line);
CLI::App* add_rerun_command(CLI::App& app, CommandLine& line);
CLI::App* add_report_command(CLI::App& app, CommandLine& line);
CLI::App* add_plan_command(CLI::App& app, CommandLine& line);
CLI::App* add_micro_command(CLI::App& app, CommandLine& line);
CLI::App* add_stress_command(CLI::App& app, CommandLine& line);
CLI::App* add_doctor_command(CLI::App& app, CommandLine& line);
CLI::App* add_sweep_command(CLI::App& app, CommandLine& line);

/// Those of `run` that say what a rank must find.
void add_expect_options(CLI::App& command, Expected& expected);

/// Those of `run` that say which program to prepare on which device.
void add_program_options(CLI::App& command, CommandLine& line);

/// Those of `run` that say which device.
void add_device_options(CLI::App& command, CommandLine& line);

/// How a sweep speaks with a process that it starts; not shown.
void add_conducted_options(CLI::App& command, CommandLine& line);

/// Those of `run` that say what to train and how long. What is typed is also kept as text, in
/// CommandLine::run_flags.
void add_workload_options(CLI::App& command, CommandLine& line);

}  // namespace nearmetal
