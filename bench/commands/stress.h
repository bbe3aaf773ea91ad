// `nearmetal stress`: keeps a device busy in one way, as a noisy neighbour would.
#pragma once

#include <atomic>

#include "bench/commands/run.h"

namespace nearmetal {

/// Until the time is over, `stop` is not 0, or the sweep that started it has seen enough; then
/// tells the rate. Throws std::invalid_argument for a load that the device has not.
ExitCode cmd_stress(const CommandLine& line, const Terminal& terminal, const std::atomic<int>& stop,
                    const BackendLoader& load = load_backend);

}  // namespace nearmetal
