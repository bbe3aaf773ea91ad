// Plans of cuDNN, bound to the memory of a step.
#include "models/cuda/compiler/lowering.h"
#include "models/cuda/cuda_program.h"

namespace nearmetal::cuda {

void CudaProgram::bind_convolutions() {
  const int64_t size = element_bytes(options_.precision);
  const FlatParameters& flat = resources_.parameters;
  for (Kernel& kernel : step_.kernels) {
    if (!kernel.convolution) continue;
    const ConvolutionCall& call = *kernel.convolution;
    const ConvolutionPlan* plan = tuner_->plan(call.problem);
    const int64_t offset = layout_.slices[call.weight_parameter].offset;
    ConvolutionOperands operands;
    operands.x = call.x->data;
    operands.y = call.y->data;
    operands.weights = call.problem.op == ConvolutionOp::backward_weights
                           ? flat.gradient(offset, size)
                           : flat.operand(offset, size);
    if (call.residual != nullptr) operands.residual = call.residual->data;
    if (call.weights != nullptr) operands.weights = call.weights->data;
    if (call.bias_parameter >= 0) {
      operands.bias = flat.operand(layout_.offset(call.bias_parameter), size);
    }
    if (call.sums != nullptr) {
      operands.sum = call.sums->data;
      operands.square_sum =
          static_cast<float*>(call.sums->data) + call.problem.shape.output_channels;
    }
    kernel.implementation = "cudnn " + plan->name();
    kernel.launch = [cudnn = cudnn_.get(), plan,
                     bound = plan->bind(operands, workspace_.get())](cudaStream_t) {
      NM_CALL(plan->try_execute(cudnn, bound));  // on the handle's stream
    };
  }
}

void CudaProgram::bind_attention() {
  const auto address = [](const Tensor* tensor) {
    return tensor == nullptr ? nullptr : tensor->data;
  };
  for (Kernel& kernel : step_.kernels) {
    if (!kernel.attention) continue;
    const AttentionCall& call = *kernel.attention;
    const AttentionExtent& extent = call.problem.extent;
    const AttentionPlan* plan = tuner_->plan(call.problem);
    AttentionOperands operands{call.packed->data,
                               call.y->data,
                               static_cast<float*>(call.log_sums->data),
                               address(call.dy),
                               static_cast<float*>(address(call.dots)),
                               address(call.packed_gradient),
                               nullptr};
    if (masks_tokens(extent)) {
      DeviceMemory& counts = token_counts_[extent.tokens];
      if (counts == nullptr) {
        counts = make_token_counts(extent);
        device_bytes_ += extent.batch * static_cast<int64_t>(sizeof(int32_t));
      }
      operands.token_counts = static_cast<const int32_t*>(counts.get());
    }
    kernel.implementation = "cudnn " + plan->name();
    kernel.launch = [cudnn = cudnn_.get(), plan,
                     bound = plan->bind(operands, workspace_.get())](cudaStream_t) {
      NM_CALL(plan->try_execute(cudnn, bound));  // on the handle's stream
    };
  }
}

}  // namespace nearmetal::cuda
