#include "models/cuda/compiler/emission.h"

#include <stdexcept>

namespace nearmetal::cuda {
namespace {

const Emitter& emitter_of(FusedKind kind) {
  for (const auto rows : {emitters::of_images(), emitters::of_tokens(), emitters::of_cudnn()}) {
    for (const Emitter& row : rows) {
      if (row.kind == kind) return row;
    }
  }
  throw std::logic_error("a kind of op has no emitter");
}

void run_plan(Kernel& kernel, const Plan& plan, const Descriptor& bound) {
  kernel.implementation = "cudnn " + plan.name();
  kernel.launch = [cudnn = kernel.bound->resources.cudnn, &plan, bound](cudaStream_t) {
    NM_CALL(plan.try_execute(cudnn, bound));  // on the handle's stream
  };
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
                .operands = bound->operands,
                .convolution = op.convolution,
                .attention = op.attention,
                .bound = bound};
  for (const int parameter : op.gradients) {
    if (emission.layout.slices[parameter].is_matrix) kernel.gradient_of = parameter;
  }
  if (op.convolution || op.attention) return kernel;
  if (op.linear) {
    if (op.is_timed) {
      kernel.linear = op.linear;
      kernel.algorithm = std::make_shared<std::string>();
    }
    kernel.launch = emitters::linear(*bound, kernel.algorithm);
  } else if (row.make != nullptr) {
    kernel.launch = row.make(*bound);
  } else {
    kernel.launch = [bound, launch = row.launch](cudaStream_t stream) { launch(*bound, stream); };
  }
  return kernel;
}

void bind_plan(Kernel& kernel, const ConvolutionPlan& plan) {
  const Bound& b = *kernel.bound;
  ConvolutionOperands operands{b[Role::x], b[Role::weights], b[Role::y]};
  if (!b.has(Role::weights)) {
    operands.weights = kernel.convolution->op == ConvolutionOp::backward_weights
                           ? b.matrix_gradient(b.parameter())
                           : b.operand(b.parameter());
  }
  operands.residual = b[Role::residual];
  operands.bias = b.operand(b.op.bias);
  if (b.has(Role::sums)) {
    operands.sum = b[Role::sums];
    operands.square_sum = b.as<float>(Role::sums) + kernel.convolution->shape.output_channels;
  }
  run_plan(kernel, plan, plan.bind(operands, b.resources.workspace));
}

void bind_plan(Kernel& kernel, const AttentionPlan& plan, const int32_t* token_counts) {
  const Bound& b = *kernel.bound;
  const AttentionOperands operands{b[Role::x],
                                   b[Role::y],
                                   b.as<float>(Role::statistics),
                                   b[Role::dy],
                                   b.as<float>(Role::scratch),
                                   b[Role::dx],
                                   token_counts};
  run_plan(kernel, plan, plan.bind(operands, b.resources.workspace));
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

void* Bound::operand(int parameter) const {
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
