// From ops to kernels: each kind of op has one emitter, which gives the launch on its tensors.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "models/cuda/compiler/choices.h"
#include "models/cuda/compiler/flat_layout.h"
#include "models/cuda/compiler/fused_op.h"
#include "models/cuda/compiler/kernel.h"
#include "models/cuda/compiler/node_shapes.h"
#include "models/cuda/compiler/resources.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// Where the ops of one micro-batch run. What launches read is copied, but for layout and
/// resources, which must outlive them.
struct Emission {
  const Graph& graph;
  const ProgramOptions& options;
  const FlatLayout& layout;
  const StepResources& resources;
  NodeShapes shapes;
  int64_t micro_batch = 0;
  const std::vector<const Tensor*>& tensors;  // by value
};

/// "pointwise_backward"
std::string name_of(FusedKind kind);

/// The kernel of an op. One of a library's plan has no launch until that is bound.
Kernel emit(const FusedOp& op, const Emission& emission);

// For emitters:

using Launch = std::function<void(cudaStream_t)>;

struct Emitter {
  FusedKind kind;
  const char* name;            // of the kind
  const char* implementation;  // of the kernel, in profiles
  Launch (*emit)(const FusedOp& op, const Emission& emission);
};

/// The tensors of an op; an absent one has no address.
class Operands {
 public:
  Operands(const FusedOp& op, const Emission& emission);
  const Tensor* tensor(Role role) const { return tensors_[static_cast<size_t>(role)]; }
  void* operator[](Role role) const {
    return tensor(role) == nullptr ? nullptr : tensor(role)->data;
  }
  template <class T>
  T* as(Role role) const {
    return static_cast<T*>((*this)[role]);
  }

 private:
  std::array<const Tensor*, role_count> tensors_{};
};

/// Where a parameter and its gradient lie; null for none.
class ParameterPlace {
 public:
  ParameterPlace(int parameter, const Emission& emission);
  const float* value() const { return exists_ ? resources_->parameters.values + offset_ : nullptr; }
  /// In the type of the activations.
  const void* operand() const {
    return exists_ ? resources_->parameters.operand(offset_, element_size_) : nullptr;
  }
  /// Of a matrix, in the type of the activations.
  void* gradient() const { return resources_->parameters.gradient(slice_, element_size_); }
  /// Of a vector.
  float* vector_gradient() const {
    return exists_ ? resources_->parameters.vector_gradients + slice_ : nullptr;
  }

 private:
  const StepResources* resources_;
  bool exists_;
  int64_t offset_ = 0, slice_ = 0, element_size_ = 0;
};

/// The state of a batch norm in the slot of the micro-batch.
class NormPlace {
 public:
  NormPlace(int norm, const Emission& emission);
  BatchNormState state() const {
    return norm_ < 0 ? BatchNormState() : resources_->norm(slot_, norm_);
  }
  /// With the sums that its convolution has left, if there are any.
  NormInput input(const void* sums) const;
  bool exists() const { return norm_ >= 0; }

 private:
  const StepResources* resources_;
  int64_t slot_;
  int norm_, channels_;
};

}  // namespace nearmetal::cuda
