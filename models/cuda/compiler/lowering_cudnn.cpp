// The sweeps of a step by cuDNN's own kernels, where none of ours may serve (Kernels::cudnn). cuDNN
// has no gradient of a bias in fp32 of activations in 16 bits, no cross entropy, no optimizer, and
// none that sets the padding of a gradient to 0: those are ours. So are all sweeps over tokens:
// layer norm, GELU, softmax and what joins tokens.
#include <memory>

#include "models/cuda/compiler/lowering_state.h"
#include "models/cuda/libraries/layers.h"

namespace nearmetal::cuda {
namespace {

void* address(const Tensor* tensor) { return tensor == nullptr ? nullptr : tensor->data; }

}  // namespace

LayerShape Lowering::layer_shape(int node) const {
  return {options_.batch_size, graph_.node(node).shape};
}

// A layer is made at its first launch, which is not in a captured graph: it needs the handle.
template <class Make, class Run>
Kernel& Lowering::emit_layer(const std::string& name, Phase phase,
                             const std::vector<const Tensor*>& operands, Make make, Run run) {
  using Layer = decltype(make(cudnnHandle_t{}));
  const auto layer = std::make_shared<std::optional<Layer>>();
  return emit(name, phase, "cudnn", operands, [=, &r = resources_](cudaStream_t) {
    if (!*layer) layer->emplace(make(r.cudnn));
    run(**layer, r.cudnn);  // on the handle's stream
  });
}

bool Lowering::forward_by_cudnn(int i) {
  switch (graph_.node(i).op) {
    case OpKind::batch_norm:
      forward_cudnn_norm(i);
      return true;
    case OpKind::relu:
      if (patterns_.norm(i) == nullptr) return false;
      forward_cudnn_norm(i);
      return true;
    case OpKind::add:
      values_[i] = cudnn_sum(graph_.node(i).name, Phase::forward, value(graph_.node(i).inputs[0]),
                             value(graph_.node(i).inputs[1]), layer_shape(i));
      return true;
    case OpKind::global_average_pool:
      forward_cudnn_pool(i);
      return true;
    default:
      return false;
  }
}

bool Lowering::backward_by_cudnn(int i) {
  if (patterns_.norm(i) != nullptr || graph_.is(i, OpKind::batch_norm)) {
    backward_cudnn_norm(i);
    return true;
  }
  if (graph_.is(i, OpKind::global_average_pool)) {
    backward_cudnn_pool(i);
    return true;
  }
  return false;
}

const Tensor* Lowering::cudnn_sum(const std::string& name, Phase phase, const Tensor* left,
                                  const Tensor* right, const LayerShape& shape) {
  const Tensor* sum = tensor(left->bytes);
  emit_layer(
      name, phase, {left, right, sum},
      [=, precision = options_.precision](cudnnHandle_t) { return SumLayer(precision, shape); },
      [=](const SumLayer& layer, cudnnHandle_t cudnn) {
        layer.forward(cudnn, left->data, right->data, sum->data);
      });
  return sum;
}

Lowering::CudnnNorm Lowering::cudnn_norm(int output) const {
  const NormPattern* pattern = patterns_.norm(output);
  if (pattern == nullptr) return {output, graph_.node(output).inputs[0], -1, NormFusion::none};
  return {pattern->norm, pattern->conv, pattern->residual,
          pattern->adds() ? NormFusion::residual_relu : NormFusion::relu};
}

// Deviceless, what cuDNN keeps is not known: a bit for each element as of a mask.
int64_t Lowering::norm_reserve_bytes(int output) const {
  const LayerShape shape = layer_shape(output);
  if (resources_.cudnn == nullptr) return shape.elements() / 8;
  return NormLayer(resources_.cudnn, options_.precision, shape, cudnn_norm(output).fusion,
                   product_workspace)
      .reserve_bytes();
}

std::function<NormLayer(cudnnHandle_t)> Lowering::norm_maker(int output) const {
  return [=, precision = options_.precision, shape = layer_shape(output),
          fusion = cudnn_norm(output).fusion](cudnnHandle_t cudnn) {
    return NormLayer(cudnn, precision, shape, fusion, product_workspace);
  };
}

std::string Lowering::norm_name(int output) const {
  const NormPattern* pattern = patterns_.norm(output);
  return pattern == nullptr ? graph_.node(output).name : name_of(graph_, *pattern);
}

void Lowering::forward_cudnn_norm(int output) {
  const CudnnNorm norm = cudnn_norm(output);
  const Tensor* x = value(norm.input);
  const Tensor* residual = norm.residual < 0 ? nullptr : value(norm.residual);
  const Tensor* y = tensor(value_bytes(output));
  const int64_t bytes = norm_reserve_bytes(output);
  const Tensor* reserve = bytes > 0 ? tensor(bytes) : nullptr;
  values_[output] = y;
  masks_[output] = reserve;
  emit_layer(norm_name(output), Phase::forward, {x, residual, y, reserve}, norm_maker(output),
             [=, slot = norm_slot(), &r = resources_](const NormLayer& layer, cudnnHandle_t cudnn) {
               layer.forward(cudnn,
                             {x->data, address(residual), y->data, address(reserve), r.workspace},
                             r.norm(slot, norm.norm));
             });
}

void Lowering::backward_cudnn_norm(int output) {
  const CudnnNorm norm = cudnn_norm(output);
  const Tensor *x = value(norm.input), *dy = gradient_of(output);
  const Tensor* y = norm.fusion == NormFusion::none ? nullptr : value(output);
  const Tensor* reserve = masks_[output];
  const Tensor* dx = tensor(value_bytes(norm.input));
  const Tensor* residual = norm.residual < 0 ? nullptr : tensor(value_bytes(norm.residual));
  gradients_[norm.input].push_back(dx);
  if (residual != nullptr) gradients_[norm.residual].push_back(residual);
  emit_layer(norm_name(output), Phase::backward, {x, y, dy, dx, residual, reserve},
             norm_maker(output),
             [=, slot = norm_slot(), &r = resources_](const NormLayer& layer, cudnnHandle_t cudnn) {
               layer.backward(cudnn,
                              {x->data, address(y), dy->data, dx->data, address(residual),
                               address(reserve), r.workspace},
                              r.norm(slot, norm.norm));
             });
}

std::function<PoolLayer(cudnnHandle_t)> Lowering::pool_maker(int pool) const {
  const Node& node = graph_.node(pool);
  const Shape& image = graph_.input_shape(node);
  const bool average = node.op == OpKind::global_average_pool;
  const auto [kernel, stride, padding] = node.window;
  const PoolWindow window =
      average ? PoolWindow{image.height, image.width} : PoolWindow{kernel, kernel, stride, padding};
  return [=, precision = options_.precision, input = layer_shape(node.inputs[0]),
          output = layer_shape(pool)](cudnnHandle_t) {
    return PoolLayer(precision, average ? Pooling::average : Pooling::maximum, window, input,
                     output);
  };
}

void Lowering::forward_cudnn_pool(int pool) {
  const Tensor* x = value(graph_.node(pool).inputs[0]);
  const Tensor* y = tensor(value_bytes(pool));
  values_[pool] = y;
  emit_layer(
      graph_.node(pool).name, Phase::forward, {x, y}, pool_maker(pool),
      [=](const PoolLayer& layer, cudnnHandle_t cudnn) { layer.forward(cudnn, x->data, y->data); });
}

void Lowering::backward_cudnn_pool(int pool) {
  const int input = graph_.node(pool).inputs[0];
  const Tensor *x = value(input), *y = value(pool), *dy = gradient_of(pool);
  const Tensor* dx = tensor(value_bytes(input));
  gradients_[input].push_back(dx);
  emit_layer(graph_.node(pool).name, Phase::backward, {x, y, dy, dx}, pool_maker(pool),
             [=](const PoolLayer& layer, cudnnHandle_t cudnn) {
               layer.backward(cudnn, x->data, y->data, dy->data, dx->data);
             });
}

// In the type of the tensor, whose copy of the parameters has the bias, too.
void Lowering::add_bias_by_cudnn(int product, const Tensor* y) {
  const int parameter = graph_.node(product).parameters[1];
  const int64_t size = element_size();
  emit_layer(
      graph_.parameters()[parameter].name, Phase::forward, {y},
      [precision = options_.precision, shape = layer_shape(product)](cudnnHandle_t) {
        return BiasLayer(precision, shape);
      },
      [=, offset = layout_.offset(parameter), &r = resources_](const BiasLayer& layer,
                                                               cudnnHandle_t cudnn) {
        layer.forward(cudnn, r.parameters.operand(offset, size), y->data);
      })
      .bytes = 2.0 * static_cast<double>(y->bytes);  // in place
}

void Lowering::forward_cudnn_activation(const ActivationPattern& pattern) {
  if (pattern.pool >= 0) return forward_cudnn_pool(pattern.pool);
  const Tensor* x = value(pattern.input);
  if (pattern.bias) add_bias_by_cudnn(pattern.input, x);
  const int output = pattern.output();
  const LayerShape shape = layer_shape(output);
  const std::string name = graph_.node(output).name;
  if (pattern.residual >= 0) {
    x = cudnn_sum(name, Phase::forward, x, value(pattern.residual), shape);
  }
  values_[output] = x;
  if (pattern.relu < 0) return;
  // In place where nothing else reads x; a pooling's backward pass would.
  const bool in_place = graph_.consumers(pattern.input).size() == 1 &&
                        !graph_.is(pattern.input, OpKind::max_pool) &&
                        !graph_.is(pattern.input, OpKind::global_average_pool);
  const Tensor* y = in_place ? x : tensor(value_bytes(output));
  values_[output] = y;
  emit_layer(
      name, Phase::forward, {x, in_place ? nullptr : y},
      [=, precision = options_.precision](cudnnHandle_t) { return ReluLayer(precision, shape); },
      [=](const ReluLayer& layer, cudnnHandle_t cudnn) { layer.forward(cudnn, x->data, y->data); })
      .bytes = 2.0 * static_cast<double>(y->bytes);
}

void Lowering::backward_cudnn_activation(const ActivationPattern& pattern) {
  if (pattern.pool >= 0) return backward_cudnn_pool(pattern.pool);
  const int output = pattern.output();
  const Tensor* dy = gradient_of(output);
  if (pattern.relu >= 0) {
    const Tensor* y = value(output);
    const Tensor* dx = tensor(value_bytes(output));
    emit_layer(
        graph_.node(output).name, Phase::backward, {y, dy, dx},
        [precision = options_.precision, shape = layer_shape(output)](cudnnHandle_t) {
          return ReluLayer(precision, shape);
        },
        [=](const ReluLayer& layer, cudnnHandle_t cudnn) {
          layer.backward(cudnn, y->data, dy->data, dx->data);
        });
    gradients_[pattern.input].push_back(dx);
    dy = dx;
  }
  // A batch norm takes the bias before it away, and with it the gradient.
  if (!pattern.bias || graph_.norm_behind(pattern.input) >= 0) return;
  const int parameter = graph_.node(pattern.input).parameters[1];
  emit(graph_.parameters()[parameter].name, Phase::backward, "own sweep", {dy},
       [=, precision = options_.precision, extent = extent(pattern.input),
        offset = layout_.slices[parameter].offset, &r = resources_](cudaStream_t stream) {
         ActivationGradient operands;
         operands.dy = dy->data;
         operands.bias_gradient = r.parameters.vector_gradients + offset;
         launch_activation_backward(precision, operands, extent, r.reduction, stream);
       });
}

}  // namespace nearmetal::cuda
