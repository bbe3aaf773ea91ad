// From ops to kernels: each kind of op has one emitter, which launches it on tensors.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/cuda/compiler/flat_layout.h"
#include "models/cuda/compiler/fused_op.h"
#include "models/cuda/compiler/kernel.h"
#include "models/cuda/compiler/node_shapes.h"
#include "models/cuda/compiler/resources.h"
#include "models/graph.h"

namespace nearmetal::cuda {

/// Where the ops of one micro-batch run. Launches read what it refers to.
struct Emission {
  NodeShapes shapes;
  const FlatLayout& layout;
  const StepResources& resources;
  int64_t micro_batch = 0;
  int64_t norm_slot = 0;
};

/// The kernel of an op on the tensors of its values. One of a library's plan has no launch until
/// that is bound.
Kernel emit(const FusedOp& op, const Emission& emission, const std::vector<const Tensor*>& tensors);

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

  bool has(Role role) const { return tensors[static_cast<size_t>(role)] != nullptr; }
  /// Null where there is none.
  void* operator[](Role role) const {
    const Tensor* tensor = tensors[static_cast<size_t>(role)];
    return tensor == nullptr ? nullptr : tensor->data;
  }
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
  const void* operand(int parameter) const;  // in the type of the activations
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
/// Those of tokens, losses and the bias of a classifier.
std::span<const Emitter> of_tokens();
/// Those of matrix products, of attention, and of what lies between its products.
std::span<const Emitter> of_products();
/// Those of cuDNN's own layers (Kernels::cudnn).
std::span<const Emitter> of_cudnn();

/// `algorithm`: its name, read at the first launch; null: the one that cuBLASLt puts first.
Launch linear(const Bound& bound, const std::shared_ptr<const std::string>& algorithm);

}  // namespace emitters

}  // namespace nearmetal::cuda
