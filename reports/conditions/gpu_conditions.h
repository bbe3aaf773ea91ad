// Conditions of GPUs: state, clocks, links and place.
#pragma once

#include "reports/conditions/condition.h"

namespace nearmetal {

/// Their signs are each of one GPU.
const Conditions& gpu_conditions();

}  // namespace nearmetal
