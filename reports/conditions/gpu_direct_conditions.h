// Conditions of the ways between GPUs and NICs.
#pragma once

#include "reports/conditions/condition.h"

namespace nearmetal {

/// Whether NICs can reach the memory of GPUs, and how far they are from them.
const Conditions& gpu_direct_conditions();

}  // namespace nearmetal
