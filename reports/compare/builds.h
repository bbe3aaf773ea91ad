// The builds of the program that measured runs.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

/// The builds of the runs, each once.
std::vector<Tool> builds_of(const std::vector<const SetRun*>& runs);

/// "0.1.0 COMMIT Release and ...". With compiler and build ID where another build, of these or of
/// `others`, would read the same.
std::string builds_text(const std::vector<Tool>& builds, const std::vector<Tool>& others = {});

}  // namespace nearmetal
