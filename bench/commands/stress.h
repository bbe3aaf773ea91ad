// `nearmetal stress`: keeps a device busy in one way, as a noisy neighbour would.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// Until the time is over, a signal stops it, or the sweep that started it has seen enough; then
/// tells the rate. std::invalid_argument for a load that the device has not.
Command stress_command();

}  // namespace nearmetal
