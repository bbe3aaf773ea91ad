// Runs and sessions of arms in the order in which they were taken.
#pragma once

#include <ostream>
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

/// Of each arm that has several sessions: each of these with its mean, the build that measured, and
/// what of the machines is not as it was in the session before.
TextTable session_table(const RunSet& set);

/// A line for each session in which all arms have runs: time, commit and the mean throughput of
/// each arm, in the form that the CSV importer of Apache Otava reads.
void print_otava_csv(std::ostream& out, const RunSet& set);

}  // namespace nearmetal
