// The figures of two sets of runs that are compared.
#pragma once

#include <optional>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/document/metric.h"

namespace nearmetal {

/// The throughput in the unit of the pair.
const Metric& throughput_of(const ArmPair& pair);

/// Whether it is the throughput of each pair, in its own unit, and nothing else.
bool is_throughput_alone(const CompareOptions& options);

/// The metrics that the options ask for, each once.
std::vector<const Metric*> compared_metrics(const std::vector<ArmPair>& pairs,
                                            const CompareOptions& options);

/// The metrics among these that a pair can have whatever its runs do: latency is of inference. All
/// of them where no pair has it, so that each says why.
std::vector<const Metric*> metrics_of_pair(const std::vector<ArmPair>& pairs, const ArmPair& pair,
                                           const std::vector<const Metric*>& metrics);

/// The rows that are left out by that; none: no row.
std::optional<Warning> note_of_rows_left_out(const std::vector<ArmPair>& pairs,
                                             const std::vector<const Metric*>& metrics);

}  // namespace nearmetal
