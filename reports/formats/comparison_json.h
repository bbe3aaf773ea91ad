// Comparisons and baselines as JSON, for scripts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/compare/baseline.h"
#include "reports/compare/compare.h"
#include "reports/compare/gate.h"

namespace nearmetal {

/// The JSON Schemas (2020-12) of what to_json() writes: those that `nearmetal schema` prints.
std::string comparison_schema();
std::string baselines_schema();

std::string to_json(const Comparison& comparison, const std::optional<GateResult>& gate,
                    ExitCode exit_code);
std::string to_json(const std::vector<BaselineSeries>& series);

}  // namespace nearmetal
