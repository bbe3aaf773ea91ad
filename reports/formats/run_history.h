// The sessions of arms in the order in which they were taken.
#pragma once

#include <ostream>

#include "base/text_table.h"
#include "reports/compare/run_set.h"

namespace nearmetal {

/// Of each arm that has several sessions: each of these with its mean, the build that measured, and
/// what of the machines is not as it was in the session before.
TextTable session_table(const RunSet& set);

/// A line for each session in which all arms have runs: time, commit and the mean throughput of
/// each arm, in the form that the CSV importer of Apache Otava reads.
void print_otava_csv(std::ostream& out, const RunSet& set);

}  // namespace nearmetal
