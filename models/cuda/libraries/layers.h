// cuDNN's own kernels for the layers that are neither a convolution nor a product: batch norm,
// ReLU, pooling and sums, of NHWC tensors. Each launches on the stream of the handle. Source: cuDNN
// API, "cudnn_ops".
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
using PoolingDescriptor = Handle<cudnnPoolingDescriptor_t, cudnnDestroyPoolingDescriptor>;
using OpTensorDescriptor = Handle<cudnnOpTensorDescriptor_t, cudnnDestroyOpTensorDescriptor>;

/// An NHWC tensor of a node.
struct LayerShape {
  int64_t images = 1;
  Shape of_image;

  int64_t elements() const { return images * of_image.elements(); }
};

inline TensorDescriptor tensor_descriptor(Precision precision, const LayerShape& shape) {
  TensorDescriptor descriptor = NM_MAKE(TensorDescriptor, cudnnCreateTensorDescriptor);
  const Shape& image = shape.of_image;
  NM_CALL(
      cudnnSetTensor4dDescriptor(descriptor.get(), CUDNN_TENSOR_NHWC, cudnn_type(precision),
                                 static_cast<int>(shape.images), static_cast<int>(image.channels),
                                 static_cast<int>(image.height), static_cast<int>(image.width)));
  return descriptor;
}

inline ActivationDescriptor relu_descriptor() {
  ActivationDescriptor descriptor = NM_MAKE(ActivationDescriptor, cudnnCreateActivationDescriptor);
  NM_CALL(cudnnSetActivationDescriptor(descriptor.get(), CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN,
                                       0));
  return descriptor;
}

/// The factors of what a call computes, and of what was there before.
inline constexpr float computed = 1, kept = 1, discarded = 0;

/// The operations that one kernel of cuDNN computes together with batch norm.
enum class NormFusion { none, relu, residual_relu };

/// Whether cuDNN has kernels for that: for fp16 alone.
constexpr bool fuses_norms(Precision precision) { return precision == Precision::fp16; }

/// Reads a tensor once where it can, which wants NHWC and training.
inline constexpr cudnnBatchNormMode_t norm_mode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;

/// The descriptor of scale, bias and statistics: one fp32 per channel.
inline TensorDescriptor state_descriptor(cudnnTensorDescriptor_t x) {
  TensorDescriptor descriptor = NM_MAKE(TensorDescriptor, cudnnCreateTensorDescriptor);
  NM_CALL(cudnnDeriveBNTensorDescriptor(descriptor.get(), x, norm_mode));
  return descriptor;
}

inline cudnnBatchNormOps_t operations_of(NormFusion fusion) {
  if (fusion == NormFusion::none) return CUDNN_BATCHNORM_OPS_BN;
  return fusion == NormFusion::relu ? CUDNN_BATCHNORM_OPS_BN_ACTIVATION
                                    : CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
}

/// Batch norm in training mode.
class NormLayer {
 public:
  /// Throws std::invalid_argument with cuDNN's reason where it has no such kernel, or where it
  /// needs more than `workspace_limit` bytes of workspace.
  NormLayer(cudnnHandle_t handle, Precision precision, const LayerShape& shape, NormFusion fusion,
            int64_t workspace_limit)
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

  /// The size of the reserve that the forward pass leaves for the backward pass.
  int64_t reserve_bytes() const { return reserve_bytes_; }

  struct Forward {
    const void* x;
    const void* residual;  // of residual_relu; else null
    void* y;
    void* reserve;  // null where it has no bytes
    void* workspace;
  };
  /// Leaves mean, inverse deviation and the running statistics in `state`.
  void forward(cudnnHandle_t handle, const Forward& operands, const BatchNormState& state) const {
    const cudnnTensorDescriptor_t x = tensor_.get();
    NM_CALL(cudnnBatchNormalizationForwardTrainingEx(
        handle, norm_mode, operations_, &computed, &discarded, x, operands.x,
        operands.residual != nullptr ? x : nullptr, operands.residual, x, operands.y,
        per_channel_.get(), state.scale, state.bias, batch_norm_momentum, state.running_mean,
        state.running_variance, batch_norm_epsilon, state.mean, state.inverse_deviation,
        activation_.get(), operands.workspace, forward_bytes_, operands.reserve, reserve_bytes_));
  }

  struct Backward {
    const void* x;
    const void* y;  // null where nothing is fused
    const void* dy;
    void* dx;
    void* residual_gradient;  // of residual_relu; else null
    void* reserve;
    void* workspace;
  };
  /// Leaves the gradients of scale and bias in `state`, too.
  void backward(cudnnHandle_t handle, const Backward& operands, const BatchNormState& state) const {
    const cudnnTensorDescriptor_t x = tensor_.get();
    NM_CALL(cudnnBatchNormalizationBackwardEx(
        handle, norm_mode, operations_, &computed, &discarded, &computed, &discarded, x, operands.x,
        operands.y != nullptr ? x : nullptr, operands.y, x, operands.dy,
        operands.residual_gradient != nullptr ? x : nullptr, operands.residual_gradient, x,
        operands.dx, per_channel_.get(), state.scale, state.bias, state.scale_gradient,
        state.bias_gradient, batch_norm_epsilon, state.mean, state.inverse_deviation,
        activation_.get(), operands.workspace, backward_bytes_, operands.reserve, reserve_bytes_));
  }

 private:
  TensorDescriptor tensor_, per_channel_;
  ActivationDescriptor activation_;
  cudnnBatchNormOps_t operations_;
  int64_t forward_bytes_ = 0, backward_bytes_ = 0, reserve_bytes_ = 0;
};

class ReluLayer {
 public:
  ReluLayer(Precision precision, const LayerShape& shape)
      : tensor_(tensor_descriptor(precision, shape)), activation_(relu_descriptor()) {}

  /// `y` may be `x`.
  void forward(cudnnHandle_t handle, const void* x, void* y) const {
    NM_CALL(cudnnActivationForward(handle, activation_.get(), &computed, tensor_.get(), x,
                                   &discarded, tensor_.get(), y));
  }
  /// The sign of y is that of x.
  void backward(cudnnHandle_t handle, const void* y, const void* dy, void* dx) const {
    NM_CALL(cudnnActivationBackward(handle, activation_.get(), &computed, tensor_.get(), y,
                                    tensor_.get(), dy, tensor_.get(), y, &discarded, tensor_.get(),
                                    dx));
  }

 private:
  TensorDescriptor tensor_;
  ActivationDescriptor activation_;
};

enum class Pooling { maximum, average };

/// Windows need not be square: the average over a whole image is pooling, too.
struct PoolWindow {
  int64_t height = 1, width = 1, stride = 1, padding = 0;
};

class PoolLayer {
 public:
  PoolLayer(Precision precision, Pooling pooling, const PoolWindow& window, const LayerShape& input,
            const LayerShape& output)
      : pooling_(NM_MAKE(PoolingDescriptor, cudnnCreatePoolingDescriptor)),
        input_(tensor_descriptor(precision, input)),
        output_(tensor_descriptor(precision, output)) {
    const auto padding = static_cast<int>(window.padding), stride = static_cast<int>(window.stride);
    NM_CALL(cudnnSetPooling2dDescriptor(
        pooling_.get(),
        pooling == Pooling::maximum ? CUDNN_POOLING_MAX_DETERMINISTIC
                                    : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
        CUDNN_PROPAGATE_NAN, static_cast<int>(window.height), static_cast<int>(window.width),
        padding, padding, stride, stride));
  }

  void forward(cudnnHandle_t handle, const void* x, void* y) const {
    NM_CALL(cudnnPoolingForward(handle, pooling_.get(), &computed, input_.get(), x, &discarded,
                                output_.get(), y));
  }
  void backward(cudnnHandle_t handle, const void* x, const void* y, const void* dy,
                void* dx) const {
    NM_CALL(cudnnPoolingBackward(handle, pooling_.get(), &computed, output_.get(), y, output_.get(),
                                 dy, input_.get(), x, &discarded, input_.get(), dx));
  }

 private:
  PoolingDescriptor pooling_;
  TensorDescriptor input_, output_;
};

class SumLayer {
 public:
  SumLayer(Precision precision, const LayerShape& shape)
      : operation_(NM_MAKE(OpTensorDescriptor, cudnnCreateOpTensorDescriptor)),
        tensor_(tensor_descriptor(precision, shape)) {
    NM_CALL(cudnnSetOpTensorDescriptor(operation_.get(), CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT,
                                       CUDNN_PROPAGATE_NAN));
  }
  void forward(cudnnHandle_t handle, const void* left, const void* right, void* sum) const {
    NM_CALL(cudnnOpTensor(handle, operation_.get(), &computed, tensor_.get(), left, &computed,
                          tensor_.get(), right, &discarded, tensor_.get(), sum));
  }

 private:
  OpTensorDescriptor operation_;
  TensorDescriptor tensor_;
};

/// Adds one value per channel to a tensor of the same type, in place.
class BiasLayer {
 public:
  BiasLayer(Precision precision, const LayerShape& shape)
      : bias_(tensor_descriptor(precision, {1, {shape.of_image.channels, 1, 1}})),
        tensor_(tensor_descriptor(precision, shape)) {}
  void forward(cudnnHandle_t handle, const void* bias, void* x) const {
    NM_CALL(cudnnAddTensor(handle, &computed, bias_.get(), bias, &kept, tensor_.get(), x));
  }

 private:
  TensorDescriptor bias_, tensor_;
};

}  // namespace nearmetal::cuda
