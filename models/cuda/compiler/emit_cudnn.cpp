#include "models/cuda/compiler/emit_cudnn.h"

#include <array>
#include <memory>
#include <optional>

#include "models/cuda/libraries/layers.h"

namespace nearmetal::cuda::emitters {
namespace {

using enum Role;

// A layer is made at its first launch, which is not in a captured graph: it needs the handle.
template <class Make, class Run>
Launch layer_launch(const Emission& e, Make make, Run run) {
  using Layer = decltype(make(cudnnHandle_t{}));
  const auto layer = std::make_shared<std::optional<Layer>>();
  return [=, &r = e.resources](cudaStream_t) {
    if (!*layer) layer->emplace(make(r.cudnn));
    run(**layer, r.cudnn);  // on the handle's stream
  };
}

auto norm_maker(const FusedOp& op, const Emission& e) {
  return [precision = e.options.precision, shape = e.shapes.layer(op.node),
          fusion = fusion_of(op.norm)](cudnnHandle_t cudnn) {
    return NormLayer(cudnn, precision, shape, fusion, product_workspace);
  };
}

auto pool_maker(const FusedOp& op, const Emission& e) {
  const Node& node = e.graph.node(op.node);
  const Shape& image = e.graph.input_shape(node);
  const bool average = node.op == OpKind::global_average_pool;
  const auto [kernel, stride, padding] = node.window;
  const PoolWindow window =
      average ? PoolWindow{image.height, image.width} : PoolWindow{kernel, kernel, stride, padding};
  return [=, precision = e.options.precision, input = e.shapes.layer(node.inputs[0]),
          output = e.shapes.layer(op.node)](cudnnHandle_t) {
    return PoolLayer(precision, average ? Pooling::average : Pooling::maximum, window, input,
                     output);
  };
}

template <class Layer>
auto layer_maker(const FusedOp& op, const Emission& e) {
  return [precision = e.options.precision, shape = e.shapes.layer(op.node)](cudnnHandle_t) {
    return Layer(precision, shape);
  };
}

Launch emit_cudnn_norm(const FusedOp& op, const Emission& e) {
  return layer_launch(
      e, norm_maker(op, e),
      [at = Operands(op, e), norm = NormPlace(op.norm.norm, e), &r = e.resources](
          const NormLayer& layer, cudnnHandle_t cudnn) {
        layer.forward(cudnn, {at[x], at[residual], at[y], at[reserve], r.workspace}, norm.state());
      });
}

Launch emit_cudnn_norm_gradient(const FusedOp& op, const Emission& e) {
  return layer_launch(
      e, norm_maker(op, e),
      [at = Operands(op, e), norm = NormPlace(op.norm.norm, e), &r = e.resources](
          const NormLayer& layer, cudnnHandle_t cudnn) {
        layer.backward(cudnn,
                       {at[x], at[y], at[dy], at[dx], at[residual_dx], at[reserve], r.workspace},
                       norm.state());
      });
}

Launch emit_cudnn_pool(const FusedOp& op, const Emission& e) {
  return layer_launch(e, pool_maker(op, e),
                      [at = Operands(op, e)](const PoolLayer& layer, cudnnHandle_t cudnn) {
                        layer.forward(cudnn, at[x], at[y]);
                      });
}

Launch emit_cudnn_pool_gradient(const FusedOp& op, const Emission& e) {
  return layer_launch(e, pool_maker(op, e),
                      [at = Operands(op, e)](const PoolLayer& layer, cudnnHandle_t cudnn) {
                        layer.backward(cudnn, at[x], at[y], at[dy], at[dx]);
                      });
}

Launch emit_cudnn_sum(const FusedOp& op, const Emission& e) {
  return layer_launch(e, layer_maker<SumLayer>(op, e),
                      [at = Operands(op, e)](const SumLayer& layer, cudnnHandle_t cudnn) {
                        layer.forward(cudnn, at[x], at[residual], at[y]);
                      });
}

// In the type of the tensor, whose copy of the parameters has the bias, too.
Launch emit_cudnn_bias(const FusedOp& op, const Emission& e) {
  return layer_launch(e, layer_maker<BiasLayer>(op, e),
                      [at = Operands(op, e), bias = ParameterPlace(op.bias, e)](
                          const BiasLayer& layer, cudnnHandle_t cudnn) {
                        layer.forward(cudnn, bias.operand(), at[x]);
                      });
}

Launch emit_cudnn_relu(const FusedOp& op, const Emission& e) {
  return layer_launch(e, layer_maker<ReluLayer>(op, e),
                      [at = Operands(op, e)](const ReluLayer& layer, cudnnHandle_t cudnn) {
                        layer.forward(cudnn, at[x], at.tensor(y) == nullptr ? at[x] : at[y]);
                      });
}

Launch emit_cudnn_relu_gradient(const FusedOp& op, const Emission& e) {
  return layer_launch(e, layer_maker<ReluLayer>(op, e),
                      [at = Operands(op, e)](const ReluLayer& layer, cudnnHandle_t cudnn) {
                        layer.backward(cudnn, at[y], at[dy], at[dx]);
                      });
}

constexpr std::array cudnn_rows = {
    Emitter{FusedKind::cudnn_norm, "cudnn_norm", "cudnn", emit_cudnn_norm},
    Emitter{FusedKind::cudnn_norm_gradient, "cudnn_norm_gradient", "cudnn",
            emit_cudnn_norm_gradient},
    Emitter{FusedKind::cudnn_pool, "cudnn_pool", "cudnn", emit_cudnn_pool},
    Emitter{FusedKind::cudnn_pool_gradient, "cudnn_pool_gradient", "cudnn",
            emit_cudnn_pool_gradient},
    Emitter{FusedKind::cudnn_sum, "cudnn_sum", "cudnn", emit_cudnn_sum},
    Emitter{FusedKind::cudnn_bias, "cudnn_bias", "cudnn", emit_cudnn_bias},
    Emitter{FusedKind::cudnn_relu, "cudnn_relu", "cudnn", emit_cudnn_relu},
    Emitter{FusedKind::cudnn_relu_gradient, "cudnn_relu_gradient", "cudnn",
            emit_cudnn_relu_gradient},
};

}  // namespace

std::span<const Emitter> cudnn_emitters() { return cudnn_rows; }

}  // namespace nearmetal::cuda::emitters
