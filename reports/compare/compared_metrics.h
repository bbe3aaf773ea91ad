// Which figures of two sets of runs are compared.
#pragma once

#include <vector>

#include "reports/compare/compare.h"
#include "reports/document/metric.h"

namespace nearmetal {

/// In the unit of the pair.
const Metric& throughput_of(const ArmPair& pair);

/// Whether it is the throughput of each pair, in its own unit, and nothing else.
bool is_throughput_alone(const CompareOptions& options);

/// Each of those that the options ask for once.
std::vector<const Metric*> compared_metrics(const std::vector<ArmPair>& pairs,
                                            const CompareOptions& options);

}  // namespace nearmetal
