// A convolution of the training step as cuDNN sees it: its problem, the plans offered for it, and
// one that runs it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/cuda/libraries/plans.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

enum class ConvolutionOp {
  forward,
  forward_statistics,  // forward, and sum and sum of squares of the output per channel
  forward_bias,        // forward, plus a bias per channel
  forward_activation,  // forward, plus a bias per channel, and ReLU
  forward_residual,    // forward, plus a bias per channel and a residual, and ReLU
  backward_data,
  backward_weights,
};

constexpr bool adds_bias(ConvolutionOp op) {
  return op == ConvolutionOp::forward_bias || op == ConvolutionOp::forward_activation ||
         op == ConvolutionOp::forward_residual;
}

/// Images x [batch, input_height, input_width, input_channels], weights [output_channels, kernel,
/// kernel, input_channels], results y [batch, output_height, output_width, output_channels].
struct ConvolutionShape {
  int64_t batch = 1;
  int64_t input_channels = 1, input_height = 1, input_width = 1;
  int64_t output_channels = 1, output_height = 1, output_width = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding_before = 0, padding_after = 0;

  int64_t input_elements() const { return batch * input_height * input_width * input_channels; }
  int64_t output_elements() const { return batch * output_height * output_width * output_channels; }
  int64_t weight_elements() const { return output_channels * kernel * kernel * input_channels; }
  double flops() const {
    return 2.0 * static_cast<double>(output_elements()) *
           static_cast<double>(kernel * kernel * input_channels);
  }
};

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

/// Device addresses of one execution; `sum` and `square_sum` (fp32) for forward_statistics only,
/// `bias` (of the type of x) where adds_bias(), one value per output channel; `residual`, shaped as
/// y, for forward_residual only.
struct ConvolutionOperands {
  void* x = nullptr;
  void* weights = nullptr;
  void* y = nullptr;
  void* sum = nullptr;
  void* square_sum = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
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
