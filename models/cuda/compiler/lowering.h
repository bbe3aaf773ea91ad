// Lowers a graph to the kernels of one training step, forward and backward: one kernel for each
// pattern that it finds, and one for each node that no pattern takes. Runs nothing and needs no
// device.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/cuda/compiler/flat_layout.h"
#include "models/cuda/compiler/resources.h"
#include "models/cuda/kernels/images.h"
#include "models/cuda/libraries/attention.h"
#include "models/cuda/libraries/convolution.h"
#include "models/cuda/libraries/linear.h"
#include "models/graph.h"
#include "models/memory_plan.h"
#include "models/program.h"

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
  // The operation that would compute this forward convolution and the sweep behind it in one.
  std::optional<ConvolutionOp> with_sweep{};
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

/// Bytes of workspace that any one convolution or attention may ask for: strict fp32 has engines
/// that need much.
constexpr int64_t workspace_limit(Precision precision) {
  return int64_t{precision == Precision::fp32 ? 2048 : 512} << 20;
}
inline constexpr int64_t product_workspace = int64_t{32} << 20;

enum class AttentionKernel { products, own, cudnn };
/// By key of the problem.
using AttentionChoices = std::map<std::string, AttentionKernel>;

/// Who computes the two products of a convolution's backward pass by second moments: one kernel of
/// ours, or two of cuDNN's.
enum class MomentsProducts { own, cudnn };
/// By key of the forward problem.
using MomentsChoices = std::map<std::string, MomentsProducts>;

/// Decisions that timing makes and that change which kernels there are.
struct LoweringChoices {
  StemForm stem = StemForm::pad_to_8;
  std::set<std::string> fused_sweeps;  // keys of problems with a sweep: statistics, bias, ...
  // Keys of backward_data problems which one kernel of ours computes together with backward_weights
  // and the batch norm's gradient before both.
  std::set<std::string> fused_backward;
  // Convolutions whose batch norm is computed by second moments where a sum follows it.
  MomentsChoices input_moments;
  // Our own kernels for the first convolution, which read the images of pad_to_4: forward with
  // statistics; backward from the pooled gradient to the weights.
  bool own_stem_forward = false;
  bool own_stem_backward = false;
  // Attention that has no choice is our kernels', where they fit, or products.
  bool own_attention = false;
  AttentionChoices attention{};
};

struct LoweredStep {
  std::deque<Tensor> tensors;  // a part behind its whole
  std::vector<Kernel> kernels;
  MemoryPlan memory;               // by tensor
  const Tensor* images = nullptr;  // of all micro-batches
  const Tensor* logits = nullptr;  // fp32, of a graph without a loss
  ImageLayout image_layout;
};

/// Throws std::invalid_argument for a graph with a node that has no kernel. `layout` and
/// `resources` must outlive the result.
LoweredStep lower(const Graph& graph, const ProgramOptions& options, const LoweringChoices& choices,
                  const FlatLayout& layout, const StepResources& resources);

/// The convolutions of a lowered step, each problem once; those that could do the sweep behind
/// them, too, are named with both operations if `with_sweeps`.
std::vector<ConvolutionProblem> distinct_problems(const LoweredStep& step, bool with_sweeps);

/// The products of a lowered step that the tuner chooses for, each problem once.
std::vector<LinearProblem> distinct_products(const LoweredStep& step);

/// The attention of a graph that the tuner chooses for, each problem once, forward before backward.
std::vector<AttentionProblem> distinct_attention(const Graph& graph, const ProgramOptions& options);

/// Cuts the gradients into buckets of at least `bucket_bytes` as sent (0: one), binds them to
/// `all_reduce` and adds to the step: their start behind the kernel that completes them, and the
/// end of all before the update. The gradients of vectors, small and complete only at the end of
/// the backward pass, are the last bucket, started together with the one before. Of several
/// micro-batches each bucket becomes the mean before its start. Gradients whose type is not
/// `options.gradient_type` are converted before the start of their bucket, and their sums back
/// after the end of all, which counts as exposed. All references must outlive the step.
void insert_exchange(LoweredStep& step, const FlatLayout& layout, const ProgramOptions& options,
                     const StepResources& resources, AllReduce& all_reduce, int64_t bucket_bytes);

}  // namespace nearmetal::cuda
