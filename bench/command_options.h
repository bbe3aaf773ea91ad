// The options of each command, tied to where their values go.
#pragma once

#include "bench/command_line.h"

namespace CLI {
class App;
}

namespace nearmetal {

// Each adds its command to `app`; parsing then fills `line`, which must stay where it is. Wrong
// values are std::invalid_argument.

CLI::App* add_run_command(CLI::App& app, CommandLine& line);
CLI::App* add_export_command(CLI::App& app, CommandLine& line);
CLI::App* add_compare_command(CLI::App& app, CommandLine& line);
CLI::App* add_gate_command(CLI::App& app, CommandLine& line);
CLI::App* add_baseline_command(CLI::App& app, CommandLine& line);
CLI::App* add_rerun_command(CLI::App& app, CommandLine& line);
CLI::App* add_report_command(CLI::App& app, CommandLine& line);

}  // namespace nearmetal
