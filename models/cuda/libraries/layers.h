// What cuDNN's own kernels need for the layers that are neither a convolution nor a product, of
// NHWC tensors. Source: cuDNN API, "cudnn_ops".
#pragma once

#include <cudnn_ops.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/libraries/handles.h"
#include "models/cuda/libraries/plans.h"
#include "models/graph.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

using TensorDescriptor = Handle<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using ActivationDescriptor = Handle<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor>;

inline TensorDescriptor tensor_descriptor(Precision precision, int64_t images, const Shape& image) {
  TensorDescriptor descriptor = NM_MAKE(TensorDescriptor, cudnnCreateTensorDescriptor);
  NM_CALL(cudnnSetTensor4dDescriptor(descriptor.get(), CUDNN_TENSOR_NHWC, cudnn_type(precision),
                                     static_cast<int>(images), static_cast<int>(image.channels),
                                     static_cast<int>(image.height),
                                     static_cast<int>(image.width)));
  return descriptor;
}

inline ActivationDescriptor relu_descriptor() {
  ActivationDescriptor descriptor = NM_MAKE(ActivationDescriptor, cudnnCreateActivationDescriptor);
  NM_CALL(cudnnSetActivationDescriptor(descriptor.get(), CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN,
                                       0));
  return descriptor;
}

/// Reads a tensor once where it can, which wants NHWC and training.
inline constexpr cudnnBatchNormMode_t norm_mode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;

/// The kernels of batch norm in training mode.
struct NormLayer {
  /// Throws std::invalid_argument with cuDNN's reason where it has no such kernel, or where it
  /// needs more than `workspace_limit` bytes of workspace.
  NormLayer(cudnnHandle_t handle, Precision precision, int64_t images, const Shape& image,
            cudnnBatchNormOps_t operations, int64_t workspace_limit)
      : tensor(tensor_descriptor(precision, images, image)),
        per_channel(NM_MAKE(TensorDescriptor, cudnnCreateTensorDescriptor)),
        operations(operations) {
    const cudnnTensorDescriptor_t x = tensor.get();
    const cudnnTensorDescriptor_t z =
        operations == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION ? x : nullptr;
    NM_CALL(cudnnDeriveBNTensorDescriptor(per_channel.get(), x, norm_mode));
    if (operations != CUDNN_BATCHNORM_OPS_BN) activation = relu_descriptor();
    const auto bytes_of = [&](auto query) {
      size_t bytes = 0;
      const cudnnStatus_t status = query(&bytes);
      if (status != CUDNN_STATUS_SUCCESS) {
        throw std::invalid_argument(std::string("cuDNN has no batch norm of this shape in ") +
                                    to_string(precision) + ": " + explained(status));
      }
      return static_cast<int64_t>(bytes);
    };
    forward_bytes = bytes_of([&](size_t* bytes) {
      return cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
          handle, norm_mode, operations, x, z, x, per_channel.get(), activation.get(), bytes);
    });
    backward_bytes = bytes_of([&](size_t* bytes) {
      return cudnnGetBatchNormalizationBackwardExWorkspaceSize(
          handle, norm_mode, operations, x, x, x, z, x, per_channel.get(), activation.get(), bytes);
    });
    reserve_bytes = bytes_of([&](size_t* bytes) {
      return cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, norm_mode, operations,
                                                                  activation.get(), x, bytes);
    });
    const int64_t workspace = std::max(forward_bytes, backward_bytes);
    if (workspace > workspace_limit) {
      throw std::invalid_argument("cuDNN's batch norm needs " + std::to_string(workspace) +
                                  " bytes of workspace, more than " +
                                  std::to_string(workspace_limit));
    }
  }

  TensorDescriptor tensor;
  TensorDescriptor per_channel;                   // scale, bias and statistics: fp32
  ActivationDescriptor activation;                // null where nothing is fused
  cudnnBatchNormOps_t operations;                 // computed together
  int64_t forward_bytes = 0, backward_bytes = 0;  // of workspace
  int64_t reserve_bytes = 0;  // that the forward pass leaves for the backward pass
};

}  // namespace nearmetal::cuda
