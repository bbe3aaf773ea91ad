// A plan as a person reads it, and as JSON.
#pragma once

#include <ostream>
#include <string>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

/// The grid and how long all will take, for each layout a table of its ranks and the command of
/// each job, then the order of launches, as far as it fits a screen.
void print_plan(std::ostream& out, const LaunchPlan& plan);

std::string plan_json(const LaunchPlan& plan);

/// The JSON Schema (2020-12) of what plan_json() writes, as reports/schema/plan.schema.json.
std::string plan_schema();

}  // namespace nearmetal
