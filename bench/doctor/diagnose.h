// The faults of a machine, by what was found on it.
#pragma once

#include <string>
#include <vector>

#include "bench/doctor/checkup.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// The findings in the order in which a run would meet them.
std::vector<Finding> diagnose(const Checkup& checkup);

/// The JSON Schema (2020-12) of what findings_to_json() writes.
std::string doctor_schema();

/// The findings and the machine that they were made on as JSON, of the schema that `nearmetal
/// schema doctor` prints.
std::string findings_to_json(const std::vector<Finding>& findings, const Environment& machine,
                             int exit_code);

}  // namespace nearmetal
