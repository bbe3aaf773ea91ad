// The JSON Schema of reports, part of the executable.
#pragma once

#include <string_view>

namespace nearmetal {

/// The text of reports/schema/report.schema.json (JSON Schema 2020-12).
std::string_view report_schema();

}  // namespace nearmetal
