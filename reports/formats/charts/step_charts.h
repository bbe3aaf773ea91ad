// What happens in the steps of runs, and in one step.
#pragma once

#include "reports/formats/charts/charts.h"

namespace nearmetal {

/// Step times of the window of each arm's typical run: one after another, and their distribution.
Chart step_strip_chart(const ShownArms& shown);
Chart step_distribution_chart(const ShownArms& shown);

/// The kernels or primitives of a step, each timed alone, by phase, against the step as a whole.
Chart profile_chart(const ShownArms& shown);

/// When each stage of a pipeline computed each micro-batch of a step.
Chart pipeline_chart(const ShownArms& shown);

}  // namespace nearmetal
