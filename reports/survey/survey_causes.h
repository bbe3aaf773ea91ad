// Why a member of a fleet may be slow.
#pragma once

#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// What is seen on the units of a suspect and not on other members of its family: conditions of
/// their machines, and series of monitors that are far from all others'.
std::vector<Finding> causes_of(const Report& report, const SurveySuspect& suspect,
                               const SurveyFamily& family);

}  // namespace nearmetal
