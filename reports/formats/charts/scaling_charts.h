// Throughput, and how it grows with the number of ranks.
#pragma once

#include "reports/formats/charts/chart.h"
#include "reports/formats/charts/shown_arms.h"

namespace nearmetal {

/// A bar from zero for the geometric mean of each arm, a whisker for its 95 % interval, a circle
/// for each run.
Chart throughput_chart(const ShownArms& shown);

/// Throughput against that of the arm with the fewest ranks, over the number of ranks, with the
/// ideal line; and that as a share of the ideal.
Chart speedup_chart(const ShownArms& shown);
Chart efficiency_chart(const ShownArms& shown);

}  // namespace nearmetal
