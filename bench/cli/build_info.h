// How this executable was built.
#pragma once

#include "reports/document/types.h"

namespace nearmetal {

/// Version, commit, build type and compiler; the commit is looked up at every build.
Tool build_info();

}  // namespace nearmetal
