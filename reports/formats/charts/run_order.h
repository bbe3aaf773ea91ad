// Single runs in the order in which they were taken.
#pragma once

#include <vector>

#include "base/text_table.h"
#include "reports/formats/charts/chart.h"
#include "reports/formats/charts/shown_arms.h"

namespace nearmetal {

/// The complete runs of an arm that it took itself, in order of their start.
std::vector<const SetRun*> runs_in_order(const RunArm& arm);

std::vector<double> throughputs_of(const std::vector<const SetRun*>& runs);

/// Of each arm with several: the least throughput, the median and the largest, and those of all
/// runs in their order.
TextTable run_order_table(const RunSet& set);

/// Each run against the median of its arm.
Chart run_order_chart(const ShownArms& shown);

}  // namespace nearmetal
