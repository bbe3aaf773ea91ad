// A plan as a person reads it.
#pragma once

#include <ostream>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

/// For each layout a table of its ranks and the command of each job, then the order of all
/// launches.
void print_plan(std::ostream& out, const LaunchPlan& plan);

}  // namespace nearmetal
