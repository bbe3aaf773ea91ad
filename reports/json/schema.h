// The JSON Schemas, part of the executable.
#pragma once

#include <string_view>

namespace nearmetal {

/// The text of reports/schema/report.schema.json (JSON Schema 2020-12).
std::string_view report_schema();
/// That of reports/schema/comparison.schema.json.
std::string_view comparison_schema();
/// That of reports/schema/layout.schema.json.
std::string_view layout_schema();
/// That of reports/schema/plan.schema.json.
std::string_view plan_schema();
/// That of reports/schema/doctor.schema.json.
std::string_view doctor_schema();

}  // namespace nearmetal
