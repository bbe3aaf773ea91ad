#include "models/cuda/libraries/layers.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "models/cuda/libraries/plans.h"

namespace nearmetal::cuda {
namespace {

// results = alpha * computed + beta * what was there
constexpr float one = 1, zero = 0;

// Reads a tensor once where it can, which wants NHWC and training.
constexpr cudnnBatchNormMode_t norm_mode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;

TensorDescriptor tensor_descriptor(cudnnDataType_t type, const LayerShape& shape) {
  cudnnTensorDescriptor_t raw = nullptr;
  NM_CALL(cudnnCreateTensorDescriptor(&raw));
  TensorDescriptor descriptor(raw);
  const Shape& image = shape.of_image;
  NM_CALL(cudnnSetTensor4dDescriptor(raw, CUDNN_TENSOR_NHWC, type, static_cast<int>(shape.images),
                                     static_cast<int>(image.channels),
                                     static_cast<int>(image.height),
                                     static_cast<int>(image.width)));
  return descriptor;
}

// The descriptor of scale, bias and statistics: one fp32 per channel.
TensorDescriptor state_descriptor(cudnnTensorDescriptor_t x) {
  cudnnTensorDescriptor_t raw = nullptr;
  NM_CALL(cudnnCreateTensorDescriptor(&raw));
  TensorDescriptor descriptor(raw);
  NM_CALL(cudnnDeriveBNTensorDescriptor(raw, x, norm_mode));
  return descriptor;
}

ActivationDescriptor relu_descriptor() {
  cudnnActivationDescriptor_t raw = nullptr;
  NM_CALL(cudnnCreateActivationDescriptor(&raw));
  ActivationDescriptor descriptor(raw);
  NM_CALL(cudnnSetActivationDescriptor(raw, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  return descriptor;
}

cudnnBatchNormOps_t operations_of(NormFusion fusion) {
  if (fusion == NormFusion::none) return CUDNN_BATCHNORM_OPS_BN;
  return fusion == NormFusion::relu ? CUDNN_BATCHNORM_OPS_BN_ACTIVATION
                                    : CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
}

}  // namespace

NormLayer::NormLayer(cudnnHandle_t handle, Precision precision, const LayerShape& shape,
                     NormFusion fusion, int64_t workspace_limit)
    : tensor_(tensor_descriptor(cudnn_type(precision), shape)),
      per_channel_(state_descriptor(tensor_.get())),
      operations_(operations_of(fusion)) {
  if (fusion != NormFusion::none) activation_ = relu_descriptor();
  const cudnnTensorDescriptor_t x = tensor_.get();
  const cudnnTensorDescriptor_t z = fusion == NormFusion::residual_relu ? x : nullptr;
  const auto bytes_of = [&](auto query) {
    size_t bytes = 0;
    const cudnnStatus_t status = query(&bytes);
    if (status != CUDNN_STATUS_SUCCESS) {
      throw std::invalid_argument(std::string("cuDNN has no batch norm of this shape in ") +
                                  to_string(precision) + ": " + explained(status));
    }
    return static_cast<int64_t>(bytes);
  };
  forward_bytes_ = bytes_of([&](size_t* bytes) {
    return cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        handle, norm_mode, operations_, x, z, x, per_channel_.get(), activation_.get(), bytes);
  });
  backward_bytes_ = bytes_of([&](size_t* bytes) {
    return cudnnGetBatchNormalizationBackwardExWorkspaceSize(handle, norm_mode, operations_, x, x,
                                                             x, z, x, per_channel_.get(),
                                                             activation_.get(), bytes);
  });
  reserve_bytes_ = bytes_of([&](size_t* bytes) {
    return cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, norm_mode, operations_,
                                                                activation_.get(), x, bytes);
  });
  const int64_t workspace = std::max(forward_bytes_, backward_bytes_);
  if (workspace > workspace_limit) {
    throw std::invalid_argument("cuDNN's batch norm needs " + std::to_string(workspace) +
                                " bytes of workspace, more than " +
                                std::to_string(workspace_limit));
  }
}

void NormLayer::forward(cudnnHandle_t handle, const Forward& operands,
                        const BatchNormState& state) const {
  const cudnnTensorDescriptor_t x = tensor_.get();
  NM_CALL(cudnnBatchNormalizationForwardTrainingEx(
      handle, norm_mode, operations_, &one, &zero, x, operands.x,
      operands.residual != nullptr ? x : nullptr, operands.residual, x, operands.y,
      per_channel_.get(), state.scale, state.bias, batch_norm_momentum, state.running_mean,
      state.running_variance, batch_norm_epsilon, state.mean, state.inverse_deviation,
      activation_.get(), operands.workspace, forward_bytes_, operands.reserve, reserve_bytes_));
}

void NormLayer::backward(cudnnHandle_t handle, const Backward& operands,
                         const BatchNormState& state) const {
  const cudnnTensorDescriptor_t x = tensor_.get();
  NM_CALL(cudnnBatchNormalizationBackwardEx(
      handle, norm_mode, operations_, &one, &zero, &one, &zero, x, operands.x,
      operands.y != nullptr ? x : nullptr, operands.y, x, operands.dy,
      operands.residual_gradient != nullptr ? x : nullptr, operands.residual_gradient, x,
      operands.dx, per_channel_.get(), state.scale, state.bias, state.scale_gradient,
      state.bias_gradient, batch_norm_epsilon, state.mean, state.inverse_deviation,
      activation_.get(), operands.workspace, backward_bytes_, operands.reserve, reserve_bytes_));
}

ReluLayer::ReluLayer(Precision precision, const LayerShape& shape)
    : tensor_(tensor_descriptor(cudnn_type(precision), shape)), activation_(relu_descriptor()) {}

void ReluLayer::forward(cudnnHandle_t handle, const void* x, void* y) const {
  NM_CALL(cudnnActivationForward(handle, activation_.get(), &one, tensor_.get(), x, &zero,
                                 tensor_.get(), y));
}

// The sign of y is that of x.
void ReluLayer::backward(cudnnHandle_t handle, const void* y, const void* dy, void* dx) const {
  NM_CALL(cudnnActivationBackward(handle, activation_.get(), &one, tensor_.get(), y, tensor_.get(),
                                  dy, tensor_.get(), y, &zero, tensor_.get(), dx));
}

PoolLayer::PoolLayer(Precision precision, Pooling pooling, const PoolWindow& window,
                     const LayerShape& input, const LayerShape& output)
    : input_(tensor_descriptor(cudnn_type(precision), input)),
      output_(tensor_descriptor(cudnn_type(precision), output)) {
  cudnnPoolingDescriptor_t raw = nullptr;
  NM_CALL(cudnnCreatePoolingDescriptor(&raw));
  pooling_.reset(raw);
  const auto padding = static_cast<int>(window.padding), stride = static_cast<int>(window.stride);
  NM_CALL(cudnnSetPooling2dDescriptor(
      raw,
      pooling == Pooling::maximum ? CUDNN_POOLING_MAX_DETERMINISTIC
                                  : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
      CUDNN_PROPAGATE_NAN, static_cast<int>(window.height), static_cast<int>(window.width), padding,
      padding, stride, stride));
}

void PoolLayer::forward(cudnnHandle_t handle, const void* x, void* y) const {
  NM_CALL(
      cudnnPoolingForward(handle, pooling_.get(), &one, input_.get(), x, &zero, output_.get(), y));
}

void PoolLayer::backward(cudnnHandle_t handle, const void* x, const void* y, const void* dy,
                         void* dx) const {
  NM_CALL(cudnnPoolingBackward(handle, pooling_.get(), &one, output_.get(), y, output_.get(), dy,
                               input_.get(), x, &zero, input_.get(), dx));
}

SumLayer::SumLayer(Precision precision, const LayerShape& shape)
    : tensor_(tensor_descriptor(cudnn_type(precision), shape)) {
  cudnnOpTensorDescriptor_t raw = nullptr;
  NM_CALL(cudnnCreateOpTensorDescriptor(&raw));
  operation_.reset(raw);
  NM_CALL(
      cudnnSetOpTensorDescriptor(raw, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN));
}

void SumLayer::forward(cudnnHandle_t handle, const void* left, const void* right, void* sum) const {
  NM_CALL(cudnnOpTensor(handle, operation_.get(), &one, tensor_.get(), left, &one, tensor_.get(),
                        right, &zero, tensor_.get(), sum));
}

BiasLayer::BiasLayer(Precision precision, const LayerShape& shape)
    : bias_(tensor_descriptor(cudnn_type(precision), {1, {shape.of_image.channels, 1, 1}})),
      tensor_(tensor_descriptor(cudnn_type(precision), shape)) {}

void BiasLayer::forward(cudnnHandle_t handle, const void* bias, void* x) const {
  NM_CALL(cudnnAddTensor(handle, &one, bias_.get(), bias, &one, tensor_.get(), x));
}

}  // namespace nearmetal::cuda
