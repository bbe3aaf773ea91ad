// Conditions of an operating system: its CPUs, clock and network, and what it allows its users.
#pragma once

#include "reports/conditions/condition.h"

namespace nearmetal {

/// CPUs, clock, network, and at last what fits many layers.
const Conditions& system_conditions();

/// Limits of a container or user.
const Conditions& limit_conditions();

}  // namespace nearmetal
