// Throughput of arms, how it grows with the number of ranks, and that of single runs and sessions
// in the order in which they were taken.
#pragma once

#include <ostream>

#include "base/text_table.h"
#include "reports/formats/charts/charts.h"

namespace nearmetal {

/// The geometric mean of each arm with its 95 % interval: curves over the ranks where each arm is
/// on one, else bars with a circle for each run.
Chart throughput_chart(const ShownArms& shown);

/// Throughput against that of the arm with the fewest ranks, over the number of ranks, with the
/// ideal line; and that as a share of the ideal.
Chart speedup_chart(const ShownArms& shown);
Chart efficiency_chart(const ShownArms& shown);

/// Of arms whose cost was asked for: time against cost.
Chart cost_chart(const ShownArms& shown);

/// Of each arm with several: least, median and largest throughput, and that of each run in order.
TextTable run_order_table(const RunSet& set);

/// Each run against the median of its arm.
Chart run_order_chart(const ShownArms& shown);

/// Of each arm that has several sessions: each of these with its mean, the build that measured, and
/// what of the machines is not as it was in the session before.
TextTable session_table(const RunSet& set);

/// A line for each session in which all arms have runs: time, commit and the mean throughput of
/// each arm, in the form that the CSV importer of Apache Otava reads.
void print_otava_csv(std::ostream& out, const RunSet& set);

}  // namespace nearmetal
