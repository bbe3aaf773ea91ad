#include "models/cuda/compiler/binding.h"

namespace nearmetal::cuda {

void run_plan(Kernel& kernel, const Plan& plan, const Descriptor& bound, cudnnHandle_t cudnn) {
  kernel.implementation = "cudnn " + plan.name();
  kernel.launch = [cudnn, &plan, bound](cudaStream_t) {
    NM_CALL(plan.try_execute(cudnn, bound));  // on the handle's stream
  };
}

void bind_convolution(Kernel& kernel, const ConvolutionPlan& plan, Precision precision,
                      const FlatLayout& layout, const StepResources& resources) {
  const int64_t size = element_bytes(precision);
  const FlatParameters& flat = resources.parameters;
  const ConvolutionCall& call = *kernel.convolution;
  const int64_t offset = layout.slices[call.weight_parameter].offset;
  ConvolutionOperands operands;
  operands.x = call.x->data;
  operands.y = call.y->data;
  operands.weights = call.weights != nullptr ? call.weights->data
                     : call.problem.op == ConvolutionOp::backward_weights
                         ? flat.gradient(offset, size)
                         : flat.operand(offset, size);
  if (call.residual != nullptr) operands.residual = call.residual->data;
  if (call.bias_parameter >= 0) {
    operands.bias = flat.operand(layout.offset(call.bias_parameter), size);
  }
  if (call.sums != nullptr) {
    operands.sum = call.sums->data;
    operands.square_sum = static_cast<float*>(call.sums->data) + call.problem.shape.output_channels;
  }
  run_plan(kernel, plan, plan.bind(operands, resources.workspace), resources.cudnn);
}

}  // namespace nearmetal::cuda
