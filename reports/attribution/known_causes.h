// What is known to cost what layers cost, and where to look for what is not.
#pragma once

#include <vector>

#include "reports/attribution/attribution.h"

namespace nearmetal {

/// Causes in the layers that count and cost time, the costliest first: those that the new side
/// shows and the base does not. A layer for which none is found has one that says where to look.
std::vector<KnownCause> known_causes(const ExplainedSide& base, const ExplainedSide& next,
                                     const std::vector<LayerShare>& layers);

/// All conditions that can slow runs and that the new side shows and the base does not, by their
/// codes in attribution; those that are specific come first.
std::vector<Finding> conditions_between(const ExplainedSide& base, const ExplainedSide& next);

}  // namespace nearmetal
