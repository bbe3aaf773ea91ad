// A comparison, and the answer of a gate, as a JSON document.
#pragma once

#include <optional>
#include <string>

#include "reports/compare/gate.h"

namespace nearmetal {

/// The JSON Schema (2020-12) of what to_json() writes, as reports/schema/comparison.schema.json.
std::string comparison_schema();

std::string to_json(const Comparison& comparison, const std::optional<GateResult>& gate,
                    ExitCode exit_code);

}  // namespace nearmetal
