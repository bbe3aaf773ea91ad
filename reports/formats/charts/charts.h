// The charts of a report or a comparison; each says what is missing where there is nothing to show.
#pragma once

#include <vector>

#include "reports/compare/compare.h"
#include "reports/compare/read_runs.h"
#include "reports/formats/charts/chart.h"

namespace nearmetal {

/// Where jobs share a GPU, what that gains, and what it costs each.
std::vector<Chart> fraction_charts(const RunSet& set);

/// Charts of a sweep with a grid, for each setting of several values: throughput over it, a curve
/// for each combination of the others; their tables also have memory and samples for a joule.
std::vector<Chart> grid_charts(const RunSet& set);

/// All of them, in the order of a page; those of sharing only where jobs share, of a grid where
/// there is one, and of a pipeline where an arm is one.
std::vector<Chart> charts_of(const GroupedRuns& runs);
std::vector<Chart> charts_of(const RunSet& base, const RunSet& next, const Comparison& comparison);

}  // namespace nearmetal
