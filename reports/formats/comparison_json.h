// A comparison, and the answer of a gate, as a JSON document.
#pragma once

#include <optional>
#include <string>

#include "reports/compare/gate.h"

namespace nearmetal {

/// What reports/schema/comparison.schema.json describes.
std::string to_json(const Comparison& comparison, const std::optional<GateResult>& gate,
                    ExitCode exit_code);

}  // namespace nearmetal
