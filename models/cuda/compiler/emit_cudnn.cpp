// The emitters of cuDNN's own layers (Kernels::cudnn).
#include <array>
#include <functional>
#include <memory>

#include "models/cuda/compiler/emission.h"
#include "models/cuda/libraries/layers.h"

namespace nearmetal::cuda::emitters {
namespace {

using enum Role;

using PoolingDescriptor = Handle<cudnnPoolingDescriptor_t, cudnnDestroyPoolingDescriptor>;
using OpTensorDescriptor = Handle<cudnnOpTensorDescriptor_t, cudnnDestroyOpTensorDescriptor>;

// The factors of what a call computes, and of what was there before.
constexpr float computed = 1, kept = 1, discarded = 0;

// Computes a layer, on the stream of the handle.
using RunLayer = std::function<void(const Bound& b, cudnnHandle_t cudnn)>;

// A layer is made at its first launch, which is not in a captured graph: it needs the handle.
template <RunLayer (*make)(const Bound& bound)>
Launch layer_launch(const Bound& bound) {
  const auto run = std::make_shared<RunLayer>();
  return [=](cudaStream_t) {
    if (!*run) *run = make(bound);
    (*run)(bound, bound.resources.cudnn);
  };
}

std::shared_ptr<const NormLayer> norm_layer(const Bound& b) {
  return std::make_shared<NormLayer>(b.resources.cudnn, b.precision(), b.shapes.batch,
                                     b.node().shape, operations_of(b.op.norm), product_workspace);
}

// Leaves mean, inverse deviation and the running statistics.
RunLayer norm(const Bound& bound) {
  return [layer = norm_layer(bound)](const Bound& b, cudnnHandle_t cudnn) {
    const cudnnTensorDescriptor_t tensor = layer->tensor.get();
    const BatchNormState state = b.norm(b.op.norm.norm);
    NM_CALL(cudnnBatchNormalizationForwardTrainingEx(
        cudnn, norm_mode, layer->operations, &computed, &discarded, tensor, b[x],
        b.has(residual) ? tensor : nullptr, b[residual], tensor, b[y], layer->per_channel.get(),
        state.scale, state.bias, batch_norm_momentum, state.running_mean, state.running_variance,
        batch_norm_epsilon, state.mean, state.inverse_deviation, layer->activation.get(),
        b.resources.workspace, layer->forward_bytes, b[reserve], layer->reserve_bytes));
  };
}

// Leaves the gradients of scale and bias, too.
RunLayer norm_gradient(const Bound& bound) {
  return [layer = norm_layer(bound)](const Bound& b, cudnnHandle_t cudnn) {
    const cudnnTensorDescriptor_t tensor = layer->tensor.get();
    const BatchNormState state = b.norm(b.op.norm.norm);
    NM_CALL(cudnnBatchNormalizationBackwardEx(
        cudnn, norm_mode, layer->operations, &computed, &discarded, &computed, &discarded, tensor,
        b[x], b.has(y) ? tensor : nullptr, b[y], tensor, b[dy],
        b.has(residual_dx) ? tensor : nullptr, b[residual_dx], tensor, b[dx],
        layer->per_channel.get(), state.scale, state.bias, state.scale_gradient,
        state.bias_gradient, batch_norm_epsilon, state.mean, state.inverse_deviation,
        layer->activation.get(), b.resources.workspace, layer->backward_bytes, b[reserve],
        layer->reserve_bytes));
  };
}

std::shared_ptr<cudnnTensorStruct> tensor_of(const Bound& b, int node) {
  return tensor_descriptor(b.precision(), b.shapes.batch, b.shapes.graph.node(node).shape);
}

// Windows need not be square: the average over a whole image is pooling, too.
std::shared_ptr<cudnnPoolingStruct> pooling_of(const Bound& b) {
  PoolingDescriptor pooling = NM_MAKE(PoolingDescriptor, cudnnCreatePoolingDescriptor);
  const auto set = [&](cudnnPoolingMode_t mode, int64_t height, int64_t width, int64_t stride,
                       int64_t padding) {
    const auto around = static_cast<int>(padding), step = static_cast<int>(stride);
    NM_CALL(cudnnSetPooling2dDescriptor(pooling.get(), mode, CUDNN_PROPAGATE_NAN,
                                        static_cast<int>(height), static_cast<int>(width), around,
                                        around, step, step));
  };
  const auto [kernel, stride, padding] = b.node().window;
  const Shape& image = b.shapes.graph.node(b.input()).shape;
  if (b.node().op == OpKind::global_average_pool) {
    set(CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, image.height, image.width, 1, 0);
  } else {
    set(CUDNN_POOLING_MAX_DETERMINISTIC, kernel, kernel, stride, padding);
  }
  return pooling;
}

RunLayer pool(const Bound& bound) {
  return [pooling = pooling_of(bound), input = tensor_of(bound, bound.input()),
          output = tensor_of(bound, bound.op.node)](const Bound& b, cudnnHandle_t cudnn) {
    NM_CALL(cudnnPoolingForward(cudnn, pooling.get(), &computed, input.get(), b[x], &discarded,
                                output.get(), b[y]));
  };
}

RunLayer pool_gradient(const Bound& bound) {
  return [pooling = pooling_of(bound), input = tensor_of(bound, bound.input()),
          output = tensor_of(bound, bound.op.node)](const Bound& b, cudnnHandle_t cudnn) {
    NM_CALL(cudnnPoolingBackward(cudnn, pooling.get(), &computed, output.get(), b[y], output.get(),
                                 b[dy], input.get(), b[x], &discarded, input.get(), b[dx]));
  };
}

RunLayer sum(const Bound& bound) {
  const std::shared_ptr operation = NM_MAKE(OpTensorDescriptor, cudnnCreateOpTensorDescriptor);
  NM_CALL(cudnnSetOpTensorDescriptor(operation.get(), CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT,
                                     CUDNN_PROPAGATE_NAN));
  return [=, tensor = tensor_of(bound, bound.op.node)](const Bound& b, cudnnHandle_t cudnn) {
    NM_CALL(cudnnOpTensor(cudnn, operation.get(), &computed, tensor.get(), b[x], &computed,
                          tensor.get(), b[residual], &discarded, tensor.get(), b[y]));
  };
}

// One value per channel, in place and in the type of the tensor, whose copy of the parameters has
// the bias, too.
RunLayer bias(const Bound& bound) {
  const std::shared_ptr per_channel =
      tensor_descriptor(bound.precision(), 1, {bound.node().shape.channels, 1, 1});
  return [=, tensor = tensor_of(bound, bound.op.node)](const Bound& b, cudnnHandle_t cudnn) {
    NM_CALL(cudnnAddTensor(cudnn, &computed, per_channel.get(), b.operand(b.op.bias), &kept,
                           tensor.get(), b[x]));
  };
}

RunLayer relu(const Bound& bound) {
  const std::shared_ptr activation = relu_descriptor();
  return [=, tensor = tensor_of(bound, bound.op.node)](const Bound& b, cudnnHandle_t cudnn) {
    NM_CALL(cudnnActivationForward(cudnn, activation.get(), &computed, tensor.get(), b[x],
                                   &discarded, tensor.get(), b.either(y, x)));
  };
}

// The sign of y is that of x.
RunLayer relu_gradient(const Bound& bound) {
  const std::shared_ptr activation = relu_descriptor();
  return [=, tensor = tensor_of(bound, bound.op.node)](const Bound& b, cudnnHandle_t cudnn) {
    NM_CALL(cudnnActivationBackward(cudnn, activation.get(), &computed, tensor.get(), b[y],
                                    tensor.get(), b[dy], tensor.get(), b[y], &discarded,
                                    tensor.get(), b[dx]));
  };
}

template <RunLayer (*make)(const Bound& bound)>
constexpr Emitter by_cudnn(FusedKind kind, const char* name) {
  return {kind, name, "cudnn", nullptr, layer_launch<make>};
}

constexpr std::array cudnn_rows = {
    by_cudnn<norm>(FusedKind::cudnn_norm, "cudnn_norm"),
    by_cudnn<norm_gradient>(FusedKind::cudnn_norm_gradient, "cudnn_norm_gradient"),
    by_cudnn<pool>(FusedKind::cudnn_pool, "cudnn_pool"),
    by_cudnn<pool_gradient>(FusedKind::cudnn_pool_gradient, "cudnn_pool_gradient"),
    by_cudnn<sum>(FusedKind::cudnn_sum, "cudnn_sum"),
    by_cudnn<bias>(FusedKind::cudnn_bias, "cudnn_bias"),
    by_cudnn<relu>(FusedKind::cudnn_relu, "cudnn_relu"),
    by_cudnn<relu_gradient>(FusedKind::cudnn_relu_gradient, "cudnn_relu_gradient"),
};

}  // namespace

std::span<const Emitter> of_cudnn() { return cudnn_rows; }

}  // namespace nearmetal::cuda::emitters
