// Where the difference between two sides comes from, layer by layer, by a stated model of a step.
#pragma once

#include <string>
#include <vector>

#include "reports/conditions/condition.h"

namespace nearmetal {

enum class ProbeUnit { seconds, hertz, share, bytes_per_second, flops_per_second };
constexpr auto names_of(ProbeUnit) {
  return std::array{"seconds", "hertz", "share", "bytes_per_second", "flops_per_second"};
}

/// A probe of a layer as seen on each side, its median over the runs.
struct SeenProbe {
  std::string name;
  ProbeUnit unit = ProbeUnit::seconds;
  Maybe<double> base;
  Maybe<double> other;
};

struct LayerShare {
  Layer layer = Layer::clock;
  Maybe<double> seconds;              // of a step; below 0: the new side is faster
  Maybe<double> share_of_step;        // of the base's
  Maybe<double> share_of_difference;  // of the steps
  bool sensitive = true;              // false: the step does not wait for this layer
  bool below_noise = false;
  std::string
      statement;  // why it is not sensitive or below the noise; of communication: which part
  std::vector<SeenProbe> seen;

  /// Whether its figure stands for something.
  bool counts() const { return seconds && sensitive && !below_noise; }
};

/// Something that is known to cost what a layer costs and was seen on the slower side alone.
struct KnownCause {
  std::string code;  // stable, for scripts
  Layer layer = Layer::clock;
  std::string seen;
  std::string hint;  // what to do about it
};

/// The explanation of one arm. Layers that count come first: what made the difference, then what
/// eased it, such as the clock of a GPU that waits. The seconds of all layers that have any and
/// `unexplained_seconds` sum up to `difference_seconds`.
struct Explanation {
  std::string arm;
  double base_step_seconds = 0;
  double new_step_seconds = 0;
  double difference_seconds = 0;   // new - base
  Maybe<double> noise_seconds;     // half the interval of the difference
  std::vector<LayerShare> layers;  // those that count first; see above
  double unexplained_seconds = 0;
  Maybe<double> unexplained_share;  // of the difference
  std::vector<KnownCause> causes;   // most likely first
};

/// Probes of the two sides that differ by less say nothing.
inline constexpr double probes_may_differ_by = 0.03;

/// The model, in words.
inline constexpr const char* attribution_model =
    "step = max(device work, input copy, queueing) + exposed communication";

/// Explains the difference of the mean steps by this model:
///
///   step = max(device work, input copy, queueing) + exposed communication
///
/// Exposed communication is measured. Queueing is the time in which the host queues one step, and
/// the input copy that of a step's images at the rate of copies from pinned (or, with --input
/// pageable, from other) memory; of either, what is hidden behind the device's work costs nothing.
/// Device work is the rest of the base's step (where queueing or input copy fill nine tenths of it,
/// the sum of its kernels' floors). It falls into what is bound by memory and what is bound by
/// operations in the ratio of the sums of their floors (models/roofline.h).
///
/// From the base to the new side, these change: the part bound by memory as copy/device does;
/// that bound by operations as product/PRECISION does, of which the change of the SM clock in the
/// window (monitor) is the layer clock, and what goes beyond it the layer compute; queueing as
/// launch/step does, of which the change of the mean of cpu/quantum is the layer cpu; the input
/// copy as copy/h2d_pinned (or copy/h2d_pageable) does. Where the CPU computes, clock (median of
/// cpu/quantum) and cpu (its mean / its median) change all of the device's work, and copy/device
/// and product/PRECISION count with what goes beyond them. Communication is the difference of what
/// was exposed.
///
/// The figure of a layer is model(base with this layer of the new side) - model(base); what layers
/// do to one another, and all that the model does not know, is unexplained. The slowest of several
/// ranks counts for each probe, the median of several runs. A layer is below the noise where its
/// probes differ by less than `probes_may_differ_by` or its seconds are below `noise_seconds`. It
/// is insensitive where the model's step stays as it is when the layer gets worse by a tenth, or as
/// much worse as it was found.
///
/// `noise_share`: half the interval of the difference, relative to the base.
/// Throws std::invalid_argument for a side that cannot_explain().
Explanation explain(const ExplainedSide& base, const ExplainedSide& next,
                    const Maybe<double>& noise_share);

/// The rest of a factor of time once `known` explains a part of it: 1 where `known` explains more,
/// since a probe alone need not meet what the window met; all of it where they point in different
/// directions.
double beyond(double factor, double known);

/// Why there is no explanation of this side; empty where there is one.
std::string cannot_explain(const ExplainedSide& side);

}  // namespace nearmetal
