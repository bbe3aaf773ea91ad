// Compares steps of a backend with the reference, tensor by tensor.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "models/graph.h"
#include "models/program.h"
#include "tests/ops/reference.h"

namespace nearmetal {

/// A point of training: random images, labels and parameters, no batch norm as it starts (1 and 0).
struct RandomCase {
  std::vector<float> parameters;
  std::vector<float> images;
  std::vector<int32_t> tokens;  // in place of images
  std::vector<int32_t> labels;

  void give_to(Program& program) const;
  ReferenceInputs inputs(const ProgramOptions& options) const;
};
RandomCase random_case(const Graph& graph, int64_t batch_size, uint64_t seed);

/// A batch norm takes away the bias of the layer before, and the loss of a span that of the logits,
/// so that its gradient is 0 but for rounding: the weight of that layer, whose gradient is the
/// measure of such a rest; null for all others.
const Parameter* weight_of_cancelled_bias(const Graph& graph, const Parameter& parameter);

/// Runs one step and reads everything that it left.
ReferenceStep run_step(Program& program);

/// Whether `after` follows from `before`, of which empty moments are 0, by update number `updates`
/// with the gradients that `after` has, up to some roundings of fp32.
::testing::AssertionResult check_update(const Graph& graph, const OptimizerOptions& options,
                                        int64_t updates, const ReferenceStep& before,
                                        const ReferenceStep& after);

/// |actual - expected| / |expected|, Euclidean; infinite where a value is not finite.
double relative_error(std::span<const double> actual, std::span<const double> expected);

/// The first step of a random batch against the reference: loss, running statistics, the gradient
/// of every parameter and their norm; then the update of two steps against the program's own
/// gradients.
///
/// fp32 must lie within `tolerance`, norm-wise: |actual - expected| / |expected| over each tensor.
/// Gradients get twelve batches, of which one must agree throughout: where the input of a ReLU lies
/// within rounding of 0, or two inputs of a pooling window within rounding of each other, one side
/// passes on a gradient that the other stops, and both are right. In a whole network that happens
/// in some batches; a wrong gradient is wrong in all.
///
/// Other precisions are bounded by what their rounding does to this very network and batch, with
/// no use of `tolerance`. Every one of the network's L products rounds its activations, and on the
/// way back its gradients, to the unit roundoff u (2^-11 for fp16 and tf32, 2^-8 for bf16).
/// Independent errors, uniform within u and so of deviation e = u / sqrt(3), add in quadrature: the
/// loss errs by about e sqrt(L), a gradient by e sqrt(2 L), times an amplification by what comes
/// after (batch norms over few values, ReLUs that switch) which is not known beforehand. So it is
/// measured: the reference runs once more with every tensor rounded to the precision, and a backend
/// may err 4 times as much as that run does, since it rounds at other places (fused operations less
/// often, partial sums in fp32 more often). An error of the rounded run that is small by chance
/// does not count below e sqrt(2 L). Which ReLUs switch is chance in both runs, and here too one
/// of the batches must agree throughout. In bf16 the bound may be more than the gradient itself,
/// which a lost factor would pass; but rounding has no direction, so that the scale of a gradient,
/// its projection on the expected one, must lie within 0.25 of 1 (seen: 0.14).
///
/// At the end the gradient of each parameter is halved in turn, which must be beyond its bound: a
/// check that a lost factor would pass fails. `trained_steps` of synthetic labels precede it all.
::testing::AssertionResult check_against_reference(Backend& backend, const Graph& graph,
                                                   const ProgramOptions& options,
                                                   double tolerance = 1e-4, int trained_steps = 0);

/// The same gradients, loss and statistics from two programs, within `tolerance` norm-wise.
::testing::AssertionResult check_same_step(const Graph& graph, const ReferenceStep& actual,
                                           const ReferenceStep& expected, double tolerance);

}  // namespace nearmetal
