// How this executable was built.
#pragma once

#include <optional>
#include <string>

#include "reports/document/types.h"

namespace nearmetal {

/// Version, commit, build type, compiler and build ID; the commit is looked up at every build.
Tool build_info();

/// Hash of what the linker says of the content of this executable and of each module that it would
/// load (their GNU build IDs); none where it says nothing.
std::optional<std::string> own_build_id();

}  // namespace nearmetal
