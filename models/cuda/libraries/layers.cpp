#include "models/cuda/libraries/layers.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "models/cuda/libraries/plans.h"

namespace nearmetal::cuda {
namespace {

// The descriptor of scale, bias and statistics: one fp32 per channel.
TensorDescriptor state_descriptor(cudnnTensorDescriptor_t x) {
  TensorDescriptor descriptor = NM_MAKE(TensorDescriptor, cudnnCreateTensorDescriptor);
  NM_CALL(cudnnDeriveBNTensorDescriptor(descriptor.get(), x, norm_mode));
  return descriptor;
}

cudnnBatchNormOps_t operations_of(NormFusion fusion) {
  if (fusion == NormFusion::none) return CUDNN_BATCHNORM_OPS_BN;
  return fusion == NormFusion::relu ? CUDNN_BATCHNORM_OPS_BN_ACTIVATION
                                    : CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
}

}  // namespace

TensorDescriptor tensor_descriptor(Precision precision, const LayerShape& shape) {
  TensorDescriptor descriptor = NM_MAKE(TensorDescriptor, cudnnCreateTensorDescriptor);
  const Shape& image = shape.of_image;
  NM_CALL(
      cudnnSetTensor4dDescriptor(descriptor.get(), CUDNN_TENSOR_NHWC, cudnn_type(precision),
                                 static_cast<int>(shape.images), static_cast<int>(image.channels),
                                 static_cast<int>(image.height), static_cast<int>(image.width)));
  return descriptor;
}

ActivationDescriptor relu_descriptor() {
  ActivationDescriptor descriptor = NM_MAKE(ActivationDescriptor, cudnnCreateActivationDescriptor);
  NM_CALL(cudnnSetActivationDescriptor(descriptor.get(), CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN,
                                       0));
  return descriptor;
}

NormLayer::NormLayer(cudnnHandle_t handle, Precision precision, const LayerShape& shape,
                     NormFusion fusion, int64_t workspace_limit)
    : tensor_(tensor_descriptor(precision, shape)),
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

PoolLayer::PoolLayer(Precision precision, Pooling pooling, const PoolWindow& window,
                     const LayerShape& input, const LayerShape& output)
    : pooling_(NM_MAKE(PoolingDescriptor, cudnnCreatePoolingDescriptor)),
      input_(tensor_descriptor(precision, input)),
      output_(tensor_descriptor(precision, output)) {
  const auto padding = static_cast<int>(window.padding), stride = static_cast<int>(window.stride);
  NM_CALL(cudnnSetPooling2dDescriptor(
      pooling_.get(),
      pooling == Pooling::maximum ? CUDNN_POOLING_MAX_DETERMINISTIC
                                  : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
      CUDNN_PROPAGATE_NAN, static_cast<int>(window.height), static_cast<int>(window.width), padding,
      padding, stride, stride));
}

}  // namespace nearmetal::cuda
