// What the probes of two sides say of each layer.
#pragma once

#include <string>
#include <vector>

#include "reports/attribution/step_model.h"

namespace nearmetal {

struct LayerFinding {
  Layer layer = Layer::clock;
  double LayerFactors::*factor_of = nullptr;  // what the layer changes in the model
  Maybe<double> factor;                       // from the base to the new side
  std::vector<SeenProbe> seen;
  std::string hidden;  // why the step does not wait for the layer, where it does not
};

/// One of each layer.
std::vector<LayerFinding> layer_findings(const SideFigures& base, const SideFigures& next,
                                         const StepModel& model);

/// Which part of the communication differs, in words.
std::string part_of_communication(const SideFigures& base, const SideFigures& next);

/// "12.3 ms"
std::string milliseconds_text(double seconds);

}  // namespace nearmetal
