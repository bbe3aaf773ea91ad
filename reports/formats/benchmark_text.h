// Runs, and the answer of a gate, in the formats of other tools: lines of text, JSON, XML and CSV.
#pragma once

#include <ostream>
#include <string>

#include "reports/compare/gate.h"
#include "reports/compare/run_set.h"

namespace nearmetal {

/// Go's benchmark format (golang.org/design/14313-benchmark-format), as benchstat reads it: a line
/// for each complete run, the settings of the work as configuration.
void print_go_benchmark(std::ostream& out, const RunSet& set);

/// Prometheus text format 0.0.4, for a textfile collector: means and intervals of each arm and
/// metric, speedup and efficiency, numbers of runs and ranks, and when the latest run began.
void print_prometheus(std::ostream& out, const RunSet& set);

/// Google Benchmark's JSON, as its tools/compare.py takes it: a repetition for each complete run,
/// real time is that of a mean step; CPU time, which is not measured, is the same.
std::string google_benchmark_json(const RunSet& set);

/// github-action-benchmark's JSON for its tool customBiggerIsBetter: mean throughput of each arm.
std::string github_action_benchmark_json(const RunSet& set);

/// JUnit XML. A test case for each run: failed is an error, partial is skipped; figures are
/// properties of the suite, "ARM / CASE / METRIC".
void print_junit(std::ostream& out, const RunSet& set);

/// A test case for each row: a failure where the gate fails it, an error where what the policy asks
/// for was not shown, skipped where it is inconclusive and may pass. `next`: the new side.
void print_junit(std::ostream& out, const Comparison& comparison, const GateResult& gate,
                 const RunSet& next);

/// Long form, RFC 4180: a header, then a line for each run and metric, the work last; then speedup
/// and efficiency of each arm that has them, with the bounds of their intervals. Text that a
/// spreadsheet would take for a formula begins with an apostrophe.
void print_csv(std::ostream& out, const RunSet& set);

}  // namespace nearmetal
