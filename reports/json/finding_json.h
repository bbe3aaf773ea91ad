// The findings of doctor about a machine.
#pragma once

#include <string>
#include <vector>

#include "reports/document/environment.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// The JSON Schema (2020-12) of what findings_to_json() writes.
std::string doctor_schema();

/// The findings and the machine that they were made on as JSON, of the schema that `nearmetal
/// schema doctor` prints.
std::string findings_to_json(const std::vector<Finding>& findings, const Environment& machine,
                             int exit_code);

namespace json {

class Archive;
void fields(Archive& field, Finding& finding);

}  // namespace json
}  // namespace nearmetal
