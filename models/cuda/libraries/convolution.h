// A convolution of the training step as cuDNN sees it: its problem, the plans offered for it, and
// one that runs it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/cuda/libraries/operands.h"
#include "models/cuda/libraries/plans.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

struct ConvolutionProblem {
  ConvolutionOp op = ConvolutionOp::forward;
  ConvolutionShape shape;
  Precision precision = Precision::fp16;

  /// Names the work: two problems with the same key can run the same plan.
  std::string key() const;
  ConvolutionProblem with(ConvolutionOp other) const { return {other, shape, precision}; }
  int64_t result_elements() const {
    if (op == ConvolutionOp::backward_data) return shape.input_elements();
    return op == ConvolutionOp::backward_weights ? shape.weight_elements()
                                                 : shape.output_elements();
  }
  /// How many products each element of the result is a sum of.
  int64_t terms() const {
    return op == ConvolutionOp::backward_data ? shape.weight_elements() / shape.input_channels
           : op == ConvolutionOp::backward_weights
               ? shape.output_elements() / shape.output_channels
               : shape.weight_elements() / shape.output_channels;
  }
};

class ConvolutionPlan : public Plan {
 public:
  explicit ConvolutionPlan(Plan plan) : Plan(std::move(plan)) {}
  Descriptor bind(const ConvolutionOperands& operands, void* workspace) const;
};

/// At most `limit` plans within the workspace. Left out, too: those that round inputs below the
/// problem's precision, and those compiled at run time: half a second each to build, and on Hopper
/// (cuDNN 9.19) never the fastest.
std::vector<ConvolutionPlan> offered_plans(const PlanDevice& device,
                                           const ConvolutionProblem& problem,
                                           int64_t workspace_limit, int limit);

/// The plan of that name. Throws std::runtime_error if this cuDNN cannot build it.
ConvolutionPlan named_plan(const PlanDevice& device, const ConvolutionProblem& problem,
                           const std::string& name);

}  // namespace nearmetal::cuda
