#include <cerrno>
#include <chrono>
#include <thread>

#include "bench/cli/command_line.h"
#include "bench/cli/process.h"
#include "bench/commands/program.h"
#include "comm/world.h"

namespace nearmetal {
namespace {

// Ranks of a job are refused for one command line, mostly: the first reports it, and mpirun ends
// the others about a second later. One that is still there then has to report it, too.
void let_first_rank_report() {
  if (launched_rank() > 0) std::this_thread::sleep_for(std::chrono::seconds(3));
}

ExitCode guarded_main(int argc, char** argv) {
  try {
    const ProcessClock clock;
    const std::vector<std::string> arguments(argv, argv + argc);
    const Terminal terminal = standard_terminal();
    const Action action = parse_command_line(program(), arguments);
    const ExitCode code = action({arguments, terminal, clock, stop_signal});
    if (code != ExitCode::run_failed && memory_ran_out) throw NotEnoughMemory();
    if (terminal.out.flush()) return code;
    const bool reader_left = errno == EPIPE;
    if (!reader_left) terminal.error("standard output could not be written");
    return code == ExitCode::ok ? ExitCode::output_failed : code;
  } catch (const std::exception& error) {
    if (exit_code_of(error) == ExitCode::usage) let_first_rank_report();
    if (should_report(error)) tell(error);
    return exit_code_of(error);
  }
}

}  // namespace
}  // namespace nearmetal

int main(int argc, char** argv) {
  nearmetal::prepare_process();
  return static_cast<int>(nearmetal::guarded_main(argc, argv));
}
