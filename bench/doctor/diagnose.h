// The faults of a machine, by what was found on it.
#pragma once

#include <vector>

#include "bench/doctor/checkup.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// The findings in the order in which a run would meet them.
std::vector<Finding> diagnose(const Checkup& checkup);

}  // namespace nearmetal
