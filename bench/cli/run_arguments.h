// The command line that asks for a recorded configuration again.
#pragma once

#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// "run" and a flag for every setting that decides what is computed and proven: none of output,
/// display or plan cache, as paths of another machine have no meaning here. Throws
/// std::invalid_argument for what no command line asks for.
std::vector<std::string> run_arguments(const RunConfig& config);

}  // namespace nearmetal
