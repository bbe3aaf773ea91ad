// One launch of a step, and the tensors that it works on.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/cuda/libraries/attention.h"
#include "models/cuda/libraries/convolution.h"
#include "models/cuda/libraries/linear.h"
#include "models/kernel_choice.h"
#include "models/memory_plan.h"

namespace nearmetal::cuda {

/// A buffer in the memory of the step, or a part of one; its address is set once that memory is
/// allocated.
struct Tensor {
  int64_t bytes = 0;
  void* data = nullptr;
  const Tensor* whole = nullptr;  // the tensor that this is a part of
  int64_t offset_bytes = 0;       // in there
};

/// A convolution among the kernels. Its weights, or their gradient, lie in the flat buffers.
struct ConvolutionCall {
  ConvolutionProblem problem;
  const Tensor* x = nullptr;
  const Tensor* y = nullptr;
  const Tensor* sums = nullptr;  // forward_statistics: sums of all channels, then of squares
  int weight_parameter = 0;
  int bias_parameter = -1;           // where adds_bias()
  const Tensor* weights = nullptr;   // in place of the parameter's
  const Tensor* residual = nullptr;  // forward_residual
};

/// A product among the kernels that the tuner chooses an algorithm for.
struct LinearCall {
  LinearProblem problem;
  std::shared_ptr<std::string> algorithm;  // its name, set when it is chosen
};

/// An attention of cuDNN's among the kernels; of forward, `packed`, `y` and `log_sums` alone.
struct AttentionCall {
  AttentionProblem problem;
  const Tensor* packed = nullptr;
  const Tensor* y = nullptr;
  const Tensor* log_sums = nullptr;
  const Tensor* dy = nullptr;
  const Tensor* dots = nullptr;
  const Tensor* packed_gradient = nullptr;
};

/// One launch of the step.
struct Kernel {
  std::string name{};  // the nodes it computes
  std::string op{};    // text_of() of its op, for lists
  Phase phase{};
  std::string implementation{};
  double flops = 0;
  double bytes = 0;  // each operand once
  std::vector<const Tensor*> operands{};
  std::optional<int> gradient_of{};  // the parameter, a matrix, whose gradient this leaves
  std::optional<ConvolutionCall> convolution{};  // `launch` is set when its plan is chosen
  std::optional<LinearCall> linear{};
  std::optional<AttentionCall> attention{};  // `launch` is set when its plan is bound
  std::function<void(cudaStream_t)> launch{};
};

/// Bytes of workspace that any one convolution may ask for: strict fp32 has engines that need much.
constexpr int64_t workspace_limit(Precision precision) {
  return int64_t{precision == Precision::fp32 ? 2048 : 512} << 20;
}
/// The same for an attention: cuDNN keeps the gradients of scores, in blocks of 128 tokens.
constexpr int64_t workspace_limit(const AttentionProblem& problem) {
  const int64_t tokens = round_up(problem.extent.tokens, 128);
  const int64_t scores = problem.extent.matrices() * tokens * tokens;
  return std::max(workspace_limit(problem.precision), scores * 2 + (int64_t{1} << 20));
}
inline constexpr int64_t product_workspace = int64_t{32} << 20;

}  // namespace nearmetal::cuda
