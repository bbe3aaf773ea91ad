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

/// What must be known beside the tables: that ranks on CPUs divide them; a line for each arm that
/// cannot run, and one for the arms that a sweep did not reach.
std::vector<std::string> arm_remarks(const RunSet& set);

/// Whether it has a speedup to show.
bool shows_speedup(const RunSet& set);

}  // namespace nearmetal
