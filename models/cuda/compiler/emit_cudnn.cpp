// The emitters of cuDNN's own layers (Kernels::cudnn).
#include <array>
#include <memory>
#include <optional>

#include "models/cuda/compiler/emission.h"
#include "models/cuda/libraries/layers.h"

namespace nearmetal::cuda::emitters {
namespace {

using enum Role;

// A layer is made at its first launch, which is not in a captured graph: it needs the handle.
template <class Make, class Run>
Launch layer_launch(const Bound& bound, Make make, Run run) {
  using Layer = decltype(make(bound));
  const auto layer = std::make_shared<std::optional<Layer>>();
  return [=](cudaStream_t) {
    if (!*layer) layer->emplace(make(bound));
    run(**layer, bound, bound.resources.cudnn);  // on the handle's stream
  };
}

template <class Layer>
Layer plain_layer(const Bound& b) {
  return Layer(b.precision(), b.shapes.layer(b.op.node));
}

NormLayer norm_layer(const Bound& b) {
  return {b.resources.cudnn, b.precision(), b.shapes.layer(b.op.node), fusion_of(b.op.norm),
          product_workspace};
}

PoolLayer pool_layer(const Bound& b) {
  const Shape& image = b.shapes.graph.node(b.input()).shape;
  const bool average = b.node().op == OpKind::global_average_pool;
  const auto [kernel, stride, padding] = b.node().window;
  const PoolWindow window =
      average ? PoolWindow{image.height, image.width} : PoolWindow{kernel, kernel, stride, padding};
  return {b.precision(), average ? Pooling::average : Pooling::maximum, window,
          b.shapes.layer(b.input()), b.shapes.layer(b.op.node)};
}

Launch norm(const Bound& bound) {
  return layer_launch(
      bound, norm_layer, [](const NormLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
        layer.forward(cudnn, {b[x], b[residual], b[y], b[reserve], b.resources.workspace},
                      b.norm(b.op.norm.norm));
      });
}

Launch norm_gradient(const Bound& bound) {
  return layer_launch(
      bound, norm_layer, [](const NormLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
        layer.backward(
            cudnn, {b[x], b[y], b[dy], b[dx], b[residual_dx], b[reserve], b.resources.workspace},
            b.norm(b.op.norm.norm));
      });
}

Launch pool(const Bound& bound) {
  return layer_launch(bound, pool_layer,
                      [](const PoolLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
                        layer.forward(cudnn, b[x], b[y]);
                      });
}

Launch pool_gradient(const Bound& bound) {
  return layer_launch(bound, pool_layer,
                      [](const PoolLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
                        layer.backward(cudnn, b[x], b[y], b[dy], b[dx]);
                      });
}

Launch sum(const Bound& bound) {
  return layer_launch(bound, plain_layer<SumLayer>,
                      [](const SumLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
                        layer.forward(cudnn, b[x], b[residual], b[y]);
                      });
}

// In the type of the tensor, whose copy of the parameters has the bias, too.
Launch bias(const Bound& bound) {
  return layer_launch(bound, plain_layer<BiasLayer>,
                      [](const BiasLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
                        layer.forward(cudnn, b.operand(b.op.bias), b[x]);
                      });
}

Launch relu(const Bound& bound) {
  return layer_launch(bound, plain_layer<ReluLayer>,
                      [](const ReluLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
                        layer.forward(cudnn, b[x], b.either(y, x));
                      });
}

Launch relu_gradient(const Bound& bound) {
  return layer_launch(bound, plain_layer<ReluLayer>,
                      [](const ReluLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
                        layer.backward(cudnn, b[y], b[dy], b[dx]);
                      });
}

constexpr Emitter by_cudnn(FusedKind kind, const char* name, Launch (*make)(const Bound&)) {
  return {kind, name, "cudnn", nullptr, make};
}

constexpr std::array cudnn_rows = {
    by_cudnn(FusedKind::cudnn_norm, "cudnn_norm", norm),
    by_cudnn(FusedKind::cudnn_norm_gradient, "cudnn_norm_gradient", norm_gradient),
    by_cudnn(FusedKind::cudnn_pool, "cudnn_pool", pool),
    by_cudnn(FusedKind::cudnn_pool_gradient, "cudnn_pool_gradient", pool_gradient),
    by_cudnn(FusedKind::cudnn_sum, "cudnn_sum", sum),
    by_cudnn(FusedKind::cudnn_bias, "cudnn_bias", bias),
    by_cudnn(FusedKind::cudnn_relu, "cudnn_relu", relu),
    by_cudnn(FusedKind::cudnn_relu_gradient, "cudnn_relu_gradient", relu_gradient),
};

}  // namespace

std::span<const Emitter> of_cudnn() { return cudnn_rows; }

}  // namespace nearmetal::cuda::emitters
