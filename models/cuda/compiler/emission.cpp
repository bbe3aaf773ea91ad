#include "models/cuda/compiler/emission.h"

#include <memory>
#include <stdexcept>

namespace nearmetal::cuda {
namespace {

const Emitter& emitter_of(FusedKind kind) {
  for (const auto rows : {emitters::of_images(), emitters::of_tokens(), emitters::of_products(),
                          emitters::of_cudnn()}) {
    for (const Emitter& row : rows) {
      if (row.kind == kind) return row;
    }
  }
  throw std::logic_error("a kind of op has no emitter");
}

// Its launch is set when its plan is chosen.
ConvolutionCall convolution_call(const Bound& bound) {
  const auto at = [&](Role role) { return bound.tensors[static_cast<size_t>(role)]; };
  return {*bound.op.convolution, at(Role::x),   at(Role::y),       at(Role::sums),
          bound.parameter(),     bound.op.bias, at(Role::weights), at(Role::residual)};
}

AttentionCall attention_call(const Bound& bound) {
  const auto at = [&](Role role) { return bound.tensors[static_cast<size_t>(role)]; };
  return {*bound.op.attention, at(Role::x),       at(Role::y), at(Role::statistics),
          at(Role::dy),        at(Role::scratch), at(Role::dx)};
}

}  // namespace

Kernel emit(const FusedOp& op, const Emission& emission,
            const std::vector<const Tensor*>& tensors) {
  const Emitter& row = emitter_of(op.kind);
  const auto bound = std::make_shared<const Bound>(op, emission, tensors);
  Kernel kernel{.name = op.name,
                .phase = op.phase,
                .implementation = row.implementation,
                .flops = op.flops,
                .bytes = op.bytes,
                .operands = bound->operands};
  for (const int parameter : op.gradients) {
    if (emission.layout.slices[parameter].is_matrix) kernel.gradient_of = parameter;
  }
  if (op.convolution) {
    kernel.convolution = convolution_call(*bound);
  } else if (op.attention) {
    kernel.attention = attention_call(*bound);
  } else if (op.linear) {
    const auto algorithm = op.is_timed ? std::make_shared<std::string>() : nullptr;
    kernel.launch = emitters::linear(*bound, algorithm);
    if (op.is_timed) kernel.linear = {*op.linear, algorithm};
  } else if (row.make != nullptr) {
    kernel.launch = row.make(*bound);
  } else {
    kernel.launch = [bound, launch = row.launch](cudaStream_t stream) { launch(*bound, stream); };
  }
  return kernel;
}

const char* name_of(FusedKind kind) { return emitter_of(kind).name; }

Bound::Bound(const FusedOp& op, const Emission& emission, const std::vector<const Tensor*>& values)
    : Emission(emission), op(op) {
  for (const Operand& operand : op.operands) {
    operands.push_back(values[operand.value]);
    tensors[static_cast<size_t>(operand.role)] = operands.back();
  }
}

const float* Bound::value(int parameter) const {
  return parameter < 0 ? nullptr : resources.parameters.values + layout.offset(parameter);
}

const void* Bound::operand(int parameter) const {
  if (parameter < 0) return nullptr;
  return resources.parameters.operand(layout.offset(parameter), shapes.element_size());
}

void* Bound::matrix_gradient(int parameter) const {
  return resources.parameters.gradient(layout.slices[parameter].offset, shapes.element_size());
}

float* Bound::vector_gradient(int parameter) const {
  if (parameter < 0) return nullptr;
  return resources.parameters.vector_gradients + layout.slices[parameter].offset;
}

BatchNormState Bound::norm(int node) const {
  return node < 0 ? BatchNormState() : resources.norm(norm_slot, node);
}

NormInput Bound::norm(int node, Role sums) const {
  NormInput input{norm(node)};
  if (!has(sums)) return input;
  input.sum = as<const float>(sums);
  input.square_sum = input.sum + shapes.extent(node).channels;
  return input;
}

}  // namespace nearmetal::cuda
