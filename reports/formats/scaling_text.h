// How throughput grows with the number of ranks, as a table.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/run_set.h"
#include "reports/text/text_table.h"

namespace nearmetal {

/// One row for each arm with runs that shares no GPU: ranks, runs, throughput, speedup and
/// efficiency with what they are against, or why there is nothing to compare it with; of inference
/// also latency.
TextTable scaling_table(const RunSet& set);

/// Arms that are in no table: a line for each that cannot run, and one for those that a sweep did
/// not come to.
std::vector<std::string> missing_texts(const RunSet& set);

/// Whether it has a speedup to show.
bool shows_speedup(const RunSet& set);

}  // namespace nearmetal
