// The checks of inference after its window, and the latency of its steps.
#pragma once

#include <atomic>
#include <cstdint>

#include "bench/run/rank_report.h"
#include "models/program.h"

namespace nearmetal {

/// Fills `latency` and `outputs_finite`, of the last step; a stop that is not 0 ends it. Where
/// several jobs share the device it measures no latency.
void check_inference(Program& program, int64_t sharing_jobs, const std::atomic<int>& stop,
                     Checks& checks);

}  // namespace nearmetal
