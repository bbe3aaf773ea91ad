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
template <auto make, auto run>
Launch layer_launch(const Bound& bound) {
  const auto layer = std::make_shared<std::optional<decltype(make(bound))>>();
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

void norm(const NormLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
  layer.forward(cudnn, {b[x], b[residual], b[y], b[reserve], b.resources.workspace},
                b.norm(b.op.norm.norm));
}

void norm_gradient(const NormLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
  layer.backward(cudnn,
                 {b[x], b[y], b[dy], b[dx], b[residual_dx], b[reserve], b.resources.workspace},
                 b.norm(b.op.norm.norm));
}

void pool(const PoolLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
  layer.forward(cudnn, b[x], b[y]);
}

void pool_gradient(const PoolLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
  layer.backward(cudnn, b[x], b[y], b[dy], b[dx]);
}

void sum(const SumLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
  layer.forward(cudnn, b[x], b[residual], b[y]);
}

// In the type of the tensor, whose copy of the parameters has the bias, too.
void bias(const BiasLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
  layer.forward(cudnn, b.operand(b.op.bias), b[x]);
}

void relu(const ReluLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
  layer.forward(cudnn, b[x], b.either(y, x));
}

void relu_gradient(const ReluLayer& layer, const Bound& b, cudnnHandle_t cudnn) {
  layer.backward(cudnn, b[y], b[dy], b[dx]);
}

template <auto make, auto run>
constexpr Emitter by_cudnn(FusedKind kind, const char* name) {
  return {kind, name, "cudnn", nullptr, layer_launch<make, run>};
}

constexpr std::array cudnn_rows = {
    by_cudnn<norm_layer, norm>(FusedKind::cudnn_norm, "cudnn_norm"),
    by_cudnn<norm_layer, norm_gradient>(FusedKind::cudnn_norm_gradient, "cudnn_norm_gradient"),
    by_cudnn<pool_layer, pool>(FusedKind::cudnn_pool, "cudnn_pool"),
    by_cudnn<pool_layer, pool_gradient>(FusedKind::cudnn_pool_gradient, "cudnn_pool_gradient"),
    by_cudnn<plain_layer<SumLayer>, sum>(FusedKind::cudnn_sum, "cudnn_sum"),
    by_cudnn<plain_layer<BiasLayer>, bias>(FusedKind::cudnn_bias, "cudnn_bias"),
    by_cudnn<plain_layer<ReluLayer>, relu>(FusedKind::cudnn_relu, "cudnn_relu"),
    by_cudnn<plain_layer<ReluLayer>, relu_gradient>(FusedKind::cudnn_relu_gradient,
                                                    "cudnn_relu_gradient"),
};

}  // namespace

std::span<const Emitter> of_cudnn() { return cudnn_rows; }

}  // namespace nearmetal::cuda::emitters
