// The part of a rank's report about it as a stage of a pipeline.
#pragma once

#include "bench/run/rank_report.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Nothing without a pipeline. The bubble, which is of all stages, is left open.
void fill_stage(const RunConfig& config, const RankResult& result, Run& run, Rank& rank);

}  // namespace nearmetal
