// Runs as the JSON of other benchmark tools, so that what reads theirs reads ours.
#pragma once

#include <string>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// Of Google Benchmark, as its tools/compare.py takes it: a repetition for each complete run, real
/// time is that of a mean step; CPU time, which is not measured, is the same.
std::string google_benchmark_json(const RunSet& set);

/// Of github-action-benchmark, for its tool customBiggerIsBetter: mean throughput of each arm.
std::string github_action_benchmark_json(const RunSet& set);

}  // namespace nearmetal
