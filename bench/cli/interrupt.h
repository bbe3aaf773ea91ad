// Ctrl-C and SIGTERM as a flag that the loop looks at between steps.
#pragma once

#include <atomic>

namespace nearmetal {

/// The first signal that arrived, 0 before.
extern std::atomic<int> stop_signal;

/// From now on the first SIGINT or SIGTERM sets stop_signal, so that what was measured can still be
/// written; a second one ends the process at once. To be called before other threads start: they
/// inherit that the two are blocked.
void catch_stop_signals();

}  // namespace nearmetal
