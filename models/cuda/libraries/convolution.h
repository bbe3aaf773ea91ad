// A convolution of the training step as cuDNN sees it: its problem, the engines offered for it, and
// a plan that runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/cuda/libraries/handles.h"
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

/// The GPU that plans are made for: that of a handle, or one that is not there but described, for
/// which plans can be built and not executed.
struct PlanDevice {
  PlanDevice(cudnnHandle_t handle) : handle(handle) {}
  /// By the properties that cuDNN gives for a device, as JSON. Throws std::runtime_error with
  /// cuDNN's reason if it does not take them.
  explicit PlanDevice(const std::string& properties_json);

  cudnnHandle_t handle = nullptr;
  std::optional<Descriptor> properties;  // where there is no handle
};

/// A finalised cuDNN plan. Copies share it. Executing does not allocate.
class ConvolutionPlan {
 public:
  ConvolutionPlan(const PlanDevice& device, const Descriptor& graph, const Descriptor& config,
                  std::string name);

  const std::string& name() const { return name_; }  // "eng62_k2=4_k13=0": engine and knobs
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// The arguments of execute(), made once.
  Descriptor bind(const ConvolutionOperands& operands, void* workspace) const;
  cudnnStatus_t try_execute(cudnnHandle_t handle, const Descriptor& bound) const {
    return cudnnBackendExecute(handle, plan_.get(), bound.get());
  }

 private:
  Descriptor graph_;  // the plan may refer to it
  Descriptor plan_;
  std::string name_;
  int64_t workspace_bytes_ = 0;
};

/// The plans that cuDNN's heuristics offer and that can be built, best guess first. Left out: plans
/// that need more workspace than `workspace_limit`, nondeterministic ones as long as there are
/// others, those that sum in less than fp32 or round inputs below the problem's precision, and
/// those compiled at run time: half a second each to build, and on Hopper (cuDNN 9.19) never the
/// fastest.
std::vector<ConvolutionPlan> offered_plans(const PlanDevice& device,
                                           const ConvolutionProblem& problem,
                                           int64_t workspace_limit, int limit);

/// The plan of that name. Throws std::runtime_error if this cuDNN cannot build it.
ConvolutionPlan named_plan(const PlanDevice& device, const ConvolutionProblem& problem,
                           const std::string& name);

}  // namespace nearmetal::cuda
