// The figures of a run that are compared.
#pragma once

#include <span>
#include <string>

#include "reports/document/types.h"

namespace nearmetal {

struct Metric {
  const char* name;
  const char* base_unit;  // of the value
  const char* unit;       // as tables show it
  double shown_per_unit;  // factor from the value to what tables show
  bool higher_is_better;
  Maybe<double> (*value_of)(const Run& run);
};

/// Throughput first: what is compared when nothing else is asked for. Times are those of the
/// slowest rank.
std::span<const Metric> all_metrics();

/// Throws std::invalid_argument that names those there are.
const Metric& metric_from(const std::string& name);

}  // namespace nearmetal
