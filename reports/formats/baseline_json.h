// Baselines as JSON, for scripts.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/baseline.h"

namespace nearmetal {

/// The JSON Schema (2020-12) of what to_json() writes.
std::string baselines_schema();

/// JSON by the schema that `nearmetal schema baselines` prints.
std::string to_json(const std::vector<BaselineSeries>& series);

}  // namespace nearmetal
