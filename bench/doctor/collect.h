// Collects what doctor looks at.
#pragma once

#include "bench/doctor/diagnose.h"

namespace nearmetal {

/// Loads every backend, asks NVML, and has mpirun start two processes of this program; takes some
/// seconds, and less than a minute.
Checkup collect_checkup();

}  // namespace nearmetal
