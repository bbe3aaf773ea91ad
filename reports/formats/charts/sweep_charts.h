// What sweeps alone have: jobs that share a GPU, and grids of settings.
#pragma once

#include <vector>

#include "reports/compare/run_set.h"
#include "reports/formats/charts/chart.h"

namespace nearmetal {

/// Where jobs share a GPU, what that gains, and what it costs each.
std::vector<Chart> fraction_charts(const RunSet& set);

/// Charts of a sweep with a grid, for each setting of several values: throughput over it, a curve
/// for each combination of the others; their tables also have memory and samples for a joule.
std::vector<Chart> grid_charts(const RunSet& set);

}  // namespace nearmetal
