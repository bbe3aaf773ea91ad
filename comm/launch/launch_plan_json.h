// A plan as a JSON document.
#pragma once

#include <string>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

/// The JSON Schema (2020-12) of what plan_json() writes, as reports/schema/plan.schema.json.
std::string plan_schema();

std::string plan_json(const LaunchPlan& plan);

}  // namespace nearmetal
