// One training step of any graph by plain loops in double precision: the judge of the backends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/graph.h"
#include "models/program.h"

namespace nearmetal {

struct ReferenceInputs {
  int64_t batch_size = 1;
  std::span<const float> parameters;  // canonical layout
  std::span<const float> images;      // [batch, channels, height, width]
  std::span<const int32_t> tokens;    // in place of images: [batch, tokens]
  std::span<const int32_t> labels;
  OptimizerOptions optimizer;
  double loss_scale = 1;
  // Emulates a precision: every activation, every activation's gradient, every matrix and its
  // gradient is rounded to it, to nearest, ties to even (tf32: the operands of products alone, the
  // rest to fp32); sums stay exact. Nothing is rounded by default.
  std::optional<Precision> rounding;
};

/// Vectors as Program defines them; moments start from 0, running statistics from (0, 1).
struct ReferenceStep {
  double loss = 0;
  double gradient_norm = 0;
  std::vector<double> gradients;
  std::vector<double> running_statistics;
  std::vector<double> parameters;  // after the update
  std::vector<double> momentum;    // likewise
  std::vector<double> second_moments;
};

ReferenceStep reference_step(const Graph& graph, const ReferenceInputs& inputs);

/// Takes `step` with the moments and parameters before an update, empty ones being 0, and the
/// gradients for it, to those behind it. That many updates have been made with this one.
void update_parameters(const Graph& graph, const OptimizerOptions& options, int64_t updates,
                       ReferenceStep& step);

/// The logits, as Program::logits(), where batch norm takes these running statistics (in the order
/// of Program::running_statistics()) in place of those of the batch. Labels are not read.
std::vector<double> reference_logits(const Graph& graph, const ReferenceInputs& inputs,
                                     std::span<const float> running_statistics);

/// The nearest value of a precision, ties to even; infinite beyond its range. tf32 keeps 10 bits
/// behind the point and the range of fp32.
double rounded(double value, Precision precision);

}  // namespace nearmetal
