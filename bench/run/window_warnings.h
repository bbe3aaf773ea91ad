// Warnings that a reader of a timed window needs before its figures are believed.
#pragma once

#include "bench/run/trainer.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Adds to the warnings of `run`, whose window is filled, as is the step time of `rank`: of a
/// warm-up that was not steady, of drift, of clocks that differ, of a step that stood still, of
/// errors of RDMA ports, and of a duration that was missed.
void warn_of_window(const RunConfig& config, const TrainerResult& result, const Rank& rank,
                    Run& run);

}  // namespace nearmetal
