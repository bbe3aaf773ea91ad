// Conditions of the ways between GPUs, and between GPUs and NICs.
#pragma once

#include "reports/conditions/condition.h"

namespace nearmetal {

/// Between GPUs of one machine.
const Conditions& peer_conditions();

/// Whether NICs can reach the memory of GPUs, and how far they are from them.
const Conditions& gpu_direct_conditions();

}  // namespace nearmetal
