#include <csignal>
#include <iostream>

#include "bench/cli/command_line.h"
#include "bench/cli/exit_status.h"
#include "bench/cli/interrupt.h"
#include "bench/commands/baseline.h"
#include "bench/commands/compare.h"
#include "bench/commands/doctor.h"
#include "bench/commands/export.h"
#include "bench/commands/generate.h"
#include "bench/commands/info.h"
#include "bench/commands/micro.h"
#include "bench/commands/plan.h"
#include "bench/commands/report.h"
#include "bench/commands/run.h"
#include "bench/commands/stress.h"
#include "bench/commands/sweep.h"

namespace nearmetal {
namespace {

ExitCode run_command(const CommandLine& line, const ProcessClock& clock, const Terminal& terminal) {
  switch (line.command) {
    case CommandLine::Command::help:
      terminal.out << line.help;
      return ExitCode::ok;
    case CommandLine::Command::version:
      return cmd_version(terminal);
    case CommandLine::Command::doctor:
      return cmd_doctor(line, terminal);
    case CommandLine::Command::schema:
      return cmd_schema(line.schema_name, terminal);
    case CommandLine::Command::validate:
      return cmd_validate(line.validate_files, terminal);
    case CommandLine::Command::export_tensors:
      return cmd_export(line, terminal);
    case CommandLine::Command::generate:
      return cmd_generate(line.generate_form, command_table(), terminal);
    case CommandLine::Command::compare:
      return cmd_compare(line.judging, terminal);
    case CommandLine::Command::gate:
      return cmd_gate(line.judging, line.baselines_folder, terminal);
    case CommandLine::Command::baseline:
      return cmd_baseline(line, terminal);
    case CommandLine::Command::rerun:
      return cmd_rerun(line.judging, terminal);
    case CommandLine::Command::report:
      return cmd_report(line.report, terminal);
    case CommandLine::Command::plan:
      return cmd_plan(line, terminal);
    case CommandLine::Command::micro:
      return cmd_micro(line, terminal);
    case CommandLine::Command::stress:
      catch_stop_signals();
      return cmd_stress(line, terminal, stop_signal);
    case CommandLine::Command::sweep:
      catch_stop_signals();
      return cmd_sweep(line, terminal, stop_signal);
    case CommandLine::Command::run:
      catch_stop_signals();
      return cmd_run(line, clock, terminal, stop_signal);
  }
  throw std::logic_error("a command without a function");
}

ExitCode guarded_main(int argc, char** argv) {
  const ProcessClock clock;
  // A reader that went away, and a file that may not grow, are errors of the write.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  const Terminal terminal = standard_terminal();
  try {
    const ExitCode code = run_command(parse_command_line({argv, argv + argc}), clock, terminal);
    if (terminal.out.flush()) return code;
    const bool reader_left = errno == EPIPE;
    if (!reader_left) terminal.err << "nearmetal: standard output could not be written\n";
    return code == ExitCode::ok ? ExitCode::output_failed : code;
  } catch (const std::exception& error) {
    if (is_to_be_told(error)) terminal.err << "nearmetal: " << error.what() << '\n';
    return exit_code_of(error);
  }
}

}  // namespace
}  // namespace nearmetal

int main(int argc, char** argv) { return static_cast<int>(nearmetal::guarded_main(argc, argv)); }
