// The build of the program that a layout names in place of this one.
#pragma once

#include <string>

#include "reports/document/types.h"

namespace nearmetal {

/// The program that lies there now, with the modules that it would load. Throws
/// std::invalid_argument, beginning with `source` (the layout's place in its file), for what is no
/// program that can be started.
Executable find_executable(const std::string& path, const std::string& source);

}  // namespace nearmetal
