// How long a step takes by its parts, and how one side's differs from another's.
#pragma once

#include <string>
#include <vector>

#include "reports/attribution/attribution.h"

namespace nearmetal {

/// The figures of one side's runs, one each: of several ranks the slowest, of several runs the
/// median.
struct SideFigures {
  Device device = Device::cpu;
  SampleUnit sample = SampleUnit::image;
  double step_seconds = 0;
  double exposed_seconds = 0;  // 0: one rank
  bool exchanges = false;
  StepNeeds needs;
  Maybe<double> sm_hertz;            // mean of the window
  Maybe<double> steal_share;         // of the CPUs' time
  Maybe<double> sums_alone_seconds;  // of a step's gradients, with nothing else going on
  std::vector<ProbeTime> probes;

  /// The probe of the copy by which samples come.
  const char* input_copy() const { return needs.input_pageable ? pageable_probe : input_probe; }
  /// The time of the probe that first_of() finds.
  Maybe<double> seconds(const std::string& name,
                        Maybe<double> ProbeTime::*which = &ProbeTime::median_seconds) const;
  /// The only probe whose name begins so: "product/", "p2p/".
  const ProbeTime* first_of(const std::string& prefix) const;
};

SideFigures figures_of(const ExplainedSide& side);

/// The parts of the base's step. All in seconds.
struct StepModel {
  double memory = 0;   // device work that its bytes bind
  double compute = 0;  // device work that its operations bind
  double queueing = 0;
  double input = 0;
  double exposed = 0;
  bool cpu_computes = false;
};

StepModel model_of(const SideFigures& base);

/// The step where this layer takes so many times as long as on the base; communication: so many
/// seconds longer.
double step_seconds(const StepModel& model, Layer changed = Layer::clock, double factor = 1);

/// The rest of a factor of time once `known` explains a part of it: 1 where `known` explains more,
/// since a probe alone need not meet what the window met; all of it where they point in different
/// directions.
double beyond(double factor, double known);

struct LayerFinding {
  Layer layer = Layer::clock;
  Maybe<double> factor;  // from the base to the new side
  std::vector<SeenProbe> seen;
  std::string hidden{};  // why the step does not wait for the layer, where it does not
  std::string beyond{};  // layers that take a part of what was seen; the factor is the rest of it
};

/// One of each layer.
std::vector<LayerFinding> layer_findings(const SideFigures& base, const SideFigures& next,
                                         const StepModel& model);

/// The part of the communication that differs, in words.
std::string part_of_communication(const SideFigures& base, const SideFigures& next);

/// "12.3 ms"
std::string milliseconds_text(double seconds);

}  // namespace nearmetal
