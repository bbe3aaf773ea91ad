// `nearmetal sweep`: several layouts, each started afresh several times, in one report.
#pragma once

#include "bench/cli/command.h"

namespace nearmetal {

/// Runs what `plan` prints. Each run is in the journal when the next one starts; the report comes
/// at the end, of a sweep that is stopped, too. A layout that fails does not keep the others from
/// running: then the exit code is that of the first failure.
Command sweep_command();

}  // namespace nearmetal
