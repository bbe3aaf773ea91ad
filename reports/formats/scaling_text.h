// How throughput grows with the number of ranks, as a table.
#pragma once

#include "reports/compare/run_set.h"
#include "reports/text/text_table.h"

namespace nearmetal {

/// One row for each arm that shares no GPU: ranks, runs, throughput, speedup and efficiency with
/// what they are against, or why there is nothing to hold it against.
TextTable scaling_table(const RunSet& set);

/// Whether it has a speedup to show.
bool shows_speedup(const RunSet& set);

}  // namespace nearmetal
