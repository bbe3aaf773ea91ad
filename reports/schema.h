// The JSON Schemas, part of the executable.
#pragma once

#include <string_view>

namespace nearmetal {

/// The text of reports/schema/report.schema.json (JSON Schema 2020-12).
std::string_view report_schema();
/// That of reports/schema/comparison.schema.json.
std::string_view comparison_schema();

}  // namespace nearmetal
