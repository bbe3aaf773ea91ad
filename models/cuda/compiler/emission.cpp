#include "models/cuda/compiler/emission.h"

#include <stdexcept>

#include "models/cuda/compiler/emit_cudnn.h"
#include "models/cuda/compiler/emit_images.h"
#include "models/cuda/compiler/emit_products.h"
#include "models/cuda/compiler/emit_tokens.h"

namespace nearmetal::cuda {
namespace {

constexpr Emitter by_plan{FusedKind::convolution, "convolution", "", nullptr};
constexpr Emitter by_product{FusedKind::linear, "linear", "cublasLt", nullptr};

const Emitter& emitter_of(FusedKind kind) {
  if (kind == FusedKind::convolution) return by_plan;
  if (kind == FusedKind::linear) return by_product;
  for (const auto rows : {emitters::image_emitters(), emitters::token_emitters(),
                          emitters::product_emitters(), emitters::cudnn_emitters()}) {
    for (const Emitter& row : rows) {
      if (row.kind == kind) return row;
    }
  }
  throw std::logic_error("a kind of op has no emitter");
}

// Its launch is set when its plan is chosen.
ConvolutionCall convolution_call(const FusedOp& op, const Operands& at, const Emission& e) {
  ConvolutionCall call;
  call.problem = *op.convolution;
  call.x = at.tensor(Role::x);
  call.y = at.tensor(Role::y);
  call.sums = at.tensor(Role::sums);
  call.weight_parameter = e.graph.node(op.node).parameters[0];
  call.bias_parameter = op.bias;
  call.weights = at.tensor(Role::weights);
  call.residual = at.tensor(Role::residual);
  call.with_sweep = op.with_sweep;
  return call;
}

AttentionCall attention_call(const FusedOp& op, const Operands& at) {
  return {*op.attention,
          at.tensor(Role::packed),
          at.tensor(Role::y),
          at.tensor(Role::log_sums),
          at.tensor(Role::dy),
          at.tensor(Role::dots),
          at.tensor(Role::packed_gradient)};
}

}  // namespace

Kernel emit(const FusedOp& op, const Emission& e) {
  const Emitter& row = emitter_of(op.kind);
  Kernel kernel{.name = op.name,
                .phase = op.phase,
                .implementation = row.implementation,
                .flops = op.flops,
                .bytes = op.bytes};
  for (const Operand& operand : op.operands) kernel.operands.push_back(e.tensors[operand.value]);
  for (const int parameter : op.gradients) {
    if (e.layout.slices[parameter].is_matrix) kernel.gradient_of = parameter;
  }
  const Operands at(op, e);
  if (op.convolution) {
    kernel.convolution = convolution_call(op, at, e);
  } else if (op.by_library) {
    kernel.implementation.clear();
    kernel.attention = attention_call(op, at);
  } else if (op.linear) {
    const auto algorithm = op.is_timed ? std::make_shared<std::string>() : nullptr;
    kernel.launch = emitters::emit_linear(op, e, algorithm);
    if (op.is_timed) kernel.linear = {*op.linear, algorithm};
  } else {
    kernel.launch = row.emit(op, e);
  }
  return kernel;
}

std::string name_of(FusedKind kind) { return emitter_of(kind).name; }

Operands::Operands(const FusedOp& op, const Emission& emission) {
  for (const Operand& operand : op.operands) {
    tensors_[static_cast<size_t>(operand.role)] = emission.tensors[operand.value];
  }
}

ParameterPlace::ParameterPlace(int parameter, const Emission& e)
    : resources_(&e.resources), exists_(parameter >= 0) {
  if (!exists_) return;
  offset_ = e.layout.offset(parameter);
  slice_ = e.layout.slices[parameter].offset;
  element_size_ = element_bytes(e.options.precision);
}

NormPlace::NormPlace(int norm, const Emission& e)
    : resources_(&e.resources),
      slot_(e.micro_batch % norm_slots(e.options)),
      norm_(norm),
      channels_(norm < 0 ? 0 : static_cast<int>(e.graph.node(norm).shape.channels)) {}

NormInput NormPlace::input(const void* sums) const {
  NormInput input{state()};
  if (sums != nullptr) {
    input.sum = static_cast<const float*>(sums);
    input.square_sum = input.sum + channels_;
  }
  return input;
}

}  // namespace nearmetal::cuda
