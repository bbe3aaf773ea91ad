// From ops to kernels, the launches of a step: each kind of op has one emitter, which launches it
// on tensors.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/cuda/compiler/flat_layout.h"
#include "models/cuda/compiler/fused_op.h"
#include "models/cuda/compiler/resources.h"
#include "models/graph.h"
#include "models/kernel_choice.h"
#include "models/memory_plan.h"

namespace nearmetal::cuda {

/// Where the ops of one micro-batch run. Launches read what it refers to.
struct Emission {
  NodeShapes shapes;
  const FlatLayout& layout;
  const StepResources& resources;
  int64_t micro_batch = 0;
  int64_t norm_slot = 0;
};

/// A buffer in the memory of the step, or a part of one; its address is set once that memory is
/// allocated.
struct Tensor {
  int64_t bytes = 0;
  void* data = nullptr;
  const Tensor* whole = nullptr;  // the tensor that this is a part of
  int64_t offset_bytes = 0;       // in there
};

struct Bound;

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
  // One that a plan of cuDNN's computes gets its `launch` from bind_plan().
  std::optional<ConvolutionProblem> convolution{};
  std::optional<AttentionProblem> attention{};
  std::optional<LinearProblem> linear{};     // that the tuner chooses an algorithm for
  std::shared_ptr<std::string> algorithm{};  // its name, set when it is chosen
  std::shared_ptr<const Bound> bound{};      // null for one that no op stands for
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

/// The kernel of an op on the tensors of its values. One of a library's plan has no launch until
/// that is bound.
Kernel emit(const FusedOp& op, const Emission& emission, const std::vector<const Tensor*>& tensors);

/// The kernel launches the plan, which must outlive it, on the stream of the handle, once its
/// tensors have addresses. `token_counts`: where masks_tokens().
void bind_plan(Kernel& kernel, const ConvolutionPlan& plan);
void bind_plan(Kernel& kernel, const AttentionPlan& plan, const int32_t* token_counts);

/// "pointwise_backward"
const char* name_of(FusedKind kind);

/// An op with what its launches read, for emitters.
struct Bound : Emission {
  Bound(const FusedOp& op, const Emission& emission, const std::vector<const Tensor*>& tensors);

  FusedOp op;
  std::array<const Tensor*, role_count> tensors{};  // by role; null where there is none
  std::vector<const Tensor*> operands;              // as those of the op

  const Node& node() const { return shapes.graph.node(op.node); }
  int input() const { return node().inputs[0]; }
  Precision precision() const { return shapes.precision; }
  Extent extent() const { return shapes.extent(op.node); }
  const ReductionScratch& reduction() const { return resources.reduction; }
  int multiprocessors() const { return resources.reduction.multiprocessors; }

  // Null where there is none.
  const Tensor* tensor(Role role) const { return tensors[static_cast<size_t>(role)]; }
  void* operator[](Role role) const {
    return tensor(role) == nullptr ? nullptr : tensor(role)->data;
  }
  bool has(Role role) const { return tensor(role) != nullptr; }
  template <class T>
  T* as(Role role) const {
    return static_cast<T*>((*this)[role]);
  }
  /// The first, or the second where an op is not in place.
  void* either(Role role, Role in_place) const {
    return has(role) ? (*this)[role] : (*this)[in_place];
  }

  // Parameters by index in the graph; null for -1.
  const float* value(int parameter) const;
  void* operand(int parameter) const;  // in the type of the activations
  void* matrix_gradient(int parameter) const;
  float* vector_gradient(int parameter) const;
  int parameter(int index = 0) const { return node().parameters[index]; }

  // Batch norms by node; an empty one for -1.
  BatchNormState norm(int node) const;
  /// With the sums that its convolution has left, if there are any.
  NormInput norm(int node, Role sums) const;
};

using Launch = std::function<void(cudaStream_t)>;

struct Emitter {
  FusedKind kind;
  const char* name;            // of the kind
  const char* implementation;  // of the kernel, in profiles
  void (*launch)(const Bound& bound, cudaStream_t stream) = nullptr;
  // Of one that keeps something from launch to launch.
  Launch (*make)(const Bound& bound) = nullptr;
};

namespace emitters {

std::span<const Emitter> of_images();
/// Those of tokens, losses and the bias of a classifier, of matrix products, and of attention with
/// what lies between its products.
std::span<const Emitter> of_tokens();
/// Those of cuDNN's own layers (Kernels::cudnn).
std::span<const Emitter> of_cudnn();

/// `algorithm`: its name, read at the first launch; null: the one that cuBLASLt puts first.
Launch linear(const Bound& bound, const std::shared_ptr<const std::string>& algorithm);

}  // namespace emitters

}  // namespace nearmetal::cuda
