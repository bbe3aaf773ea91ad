// Logs of MLPerf Training: lines ":::MLLOG {json}" (github.com/mlcommons/logging).
#pragma once

#include "reports/imports/published.h"

namespace nearmetal {

/// A result for each run, of ResNet or BERT. Throws InvalidReport, naming the line, for what is cut
/// off, of another benchmark, or has no figure that agrees with the length of its run.
std::vector<NamedResult> results_of_mlperf(const PublishedLog& log);

}  // namespace nearmetal
