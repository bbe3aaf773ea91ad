// Why a member of a fleet may be slow.
#pragma once

#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// Finds what the units of a suspect show and other members of its family do not: conditions of
/// their machines, and series of monitors that are far from all others'.
std::vector<Finding> causes_of(const Report& report, const SurveySuspect& suspect,
                               const SurveyFamily& family);

}  // namespace nearmetal
