// Holds a layout file against this machine.
#pragma once

#include <string>

#include "bench/doctor/diagnose.h"

namespace nearmetal {

/// Plans what a sweep of the file would start, and looks whether the GPUs that it names on this
/// machine, MIG devices, MPS and what its ranks are to find are there, as `checkup` knows them.
/// Starts nothing.
LayoutCheck check_layout(const std::string& file, const Checkup& checkup);

}  // namespace nearmetal
