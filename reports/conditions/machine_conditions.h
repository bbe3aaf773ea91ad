// Conditions of a machine: its GPUs, its operating system, and what that allows its users.
#pragma once

#include "reports/conditions/condition.h"

namespace nearmetal {

/// State, clocks, links and place of GPUs. Their signs are each of one GPU.
const Conditions& gpu_conditions();

/// CPUs, clock, network, and at last what fits many layers.
const Conditions& system_conditions();

/// Limits of a container or user.
const Conditions& limit_conditions();

}  // namespace nearmetal
