// `nearmetal run`: trains one workload, prints a table, writes a report.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "bench/cli/command_line.h"
#include "bench/cli/terminal.h"
#include "bench/environment/process_clock.h"
#include "models/backend.h"
#include "models/exit_code.h"

namespace nearmetal {

using BackendLoader = std::function<Backend&(const std::string& name)>;

/// `stop` not 0 is the signal that asks for an early end. A run that fails or is stopped still
/// writes its report; what keeps it from starting (settings, device, a path) is thrown instead.
ExitCode cmd_run(const CommandLine& line, const ProcessClock& clock, const Terminal& terminal,
                 const std::atomic<int>& stop, const BackendLoader& load = load_backend);

}  // namespace nearmetal
