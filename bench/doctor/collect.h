// Collects what doctor looks at.
#pragma once

#include "bench/doctor/diagnose.h"
#include "comm/layout/layout.h"

namespace nearmetal {

/// Loads every backend, asks NVML, and has mpirun start processes of this program: two here, and
/// one on each host of `layouts`, where it has others than this machine. Takes some seconds;
/// minutes where they hang.
Checkup collect_checkup(const LayoutFile& layouts);

}  // namespace nearmetal
