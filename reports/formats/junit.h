// Runs, and the answer of a gate, as JUnit XML.
#pragma once

#include <ostream>

#include "reports/compare/gate.h"
#include "reports/compare/run_set.h"

namespace nearmetal {

/// A test case for each run: failed is an error, partial is skipped; figures are properties.
void print_junit(std::ostream& out, const RunSet& set);

/// A test case for each row: a failure where the gate fails it, an error where what the policy asks
/// for was not or could not be shown, skipped where it is inconclusive and the policy lets it pass.
void print_junit(std::ostream& out, const Comparison& comparison, const GateResult& gate);

}  // namespace nearmetal
