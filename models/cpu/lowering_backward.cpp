#include "models/cpu/loops.h"
#include "models/cpu/lowering_state.h"

namespace nearmetal::cpu {

using dnnl::algorithm;

void Lowering::backward(int i) {
  switch (graph_.node(i).op) {
    case OpKind::boundary:
      return backward_boundary(i);
    case OpKind::input:
    case OpKind::token_ids:
    case OpKind::softmax_cross_entropy:  // their gradient comes with their value
    case OpKind::span_loss:
      return;
    case OpKind::embedding:
      return by_gradient(i, &Lowering::backward_embedding);
    case OpKind::conv:
      return by_gradient(i, &Lowering::backward_convolution);
    case OpKind::batch_norm:
      return by_gradient(i, &Lowering::backward_norm);
    case OpKind::relu:
      return backward_relu(i);
    case OpKind::add:
      return by_gradient(i, &Lowering::backward_add);
    case OpKind::max_pool:
    case OpKind::global_average_pool:
      return by_gradient(i, &Lowering::backward_pool);
    case OpKind::linear:
    case OpKind::token_linear:
      return by_gradient(i, &Lowering::backward_linear);
    case OpKind::layer_norm:
      return by_gradient(i, &Lowering::backward_layer_norm);
    case OpKind::gelu:
      return by_gradient(i, &Lowering::backward_gelu);
    case OpKind::attention:
      return by_gradient(i, &Lowering::backward_attention);
    case OpKind::class_token:
      return by_gradient(i, &Lowering::backward_class_token);
    case OpKind::positions:
      return by_gradient(i, &Lowering::backward_positions);
    case OpKind::select_token:
      return by_gradient(i, &Lowering::backward_select_token);
  }
}

void Lowering::by_gradient(int i, void (Lowering::*backward)(int, Tensor*)) {
  if (Tensor* dy = gradient_of(i)) (this->*backward)(i, dy);
}

void Lowering::add_gradient(int node, Tensor* gradient) {
  gradients_[node].push_back(
      reordered(graph_.node(node).name, Phase::backward, gradient, value(node)->desc()));
}

Tensor* Lowering::gradient_of(int node) {
  std::vector<Tensor*>& parts = gradients_[node];
  while (parts.size() > 1) {
    Tensor* left = parts[parts.size() - 2];
    Tensor* right = parts.back();
    Tensor* sum = tensor(left->desc());
    const int64_t elements = sum->bytes() / element_bytes(options_.precision);
    emit(graph_.node(node).name + " gradients", Phase::backward, "own loop", {left, right, sum},
         [=, precision = options_.precision] {
           add(precision, left->data(), right->data(), false, sum->data(), elements);
         });
    parts.pop_back();
    parts.back() = sum;
  }
  return parts.empty() ? nullptr : parts.front();
}

void Lowering::backward_convolution(int i, Tensor* dy) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0], weight = node.parameters[0];
  const Dims strides{node.window.stride, node.window.stride};
  const Dims padding{node.window.padding, node.window.padding};
  const Dims weight_dims = graph_.parameters()[weight].dims;
  const auto& hint = convolutions_.at(i);

  const auto weights = describe_backward<dnnl::convolution_backward_weights>(
      place_, hint, algorithm::convolution_direct, any(dims(input)), any_fp32(weight_dims),
      bias_desc(node), any(dims(i)), strides, padding, padding);
  Tensor* x = reordered(node.name, Phase::backward, value(input), weights.src_desc());
  Tensor* dy_for_weights = reordered(node.name, Phase::backward, dy, weights.diff_dst_desc());
  Tensor* dw = gradient_target(weight, weights.diff_weights_desc());
  Arguments arguments{
      {DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy_for_weights}, {DNNL_ARG_DIFF_WEIGHTS, dw}};
  if (node.has_bias()) {
    arguments.emplace_back(DNNL_ARG_DIFF_BIAS, step_.slices[node.parameters[1]].gradient);
  }
  emit<dnnl::convolution_backward_weights>(node.name, Phase::backward,
                                           key("conv backward_weights", i), weights, arguments)
      .flops = flops(i);
  store_gradient(node.name, weight, dw);
  if (graph_.is(input, OpKind::input)) return;

  const auto data = describe_backward<dnnl::convolution_backward_data>(
      place_, hint, algorithm::convolution_direct, any(dims(input)), any(weight_dims), any(dims(i)),
      strides, padding, padding);
  Tensor* w = reordered(node.name, Phase::backward, operand(weight), data.weights_desc());
  Tensor* dy_for_data = reordered(node.name, Phase::backward, dy, data.diff_dst_desc());
  Tensor* dx = tensor(data.diff_src_desc());
  emit<dnnl::convolution_backward_data>(
      node.name, Phase::backward, key("conv backward_data", i), data,
      {{DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DIFF_DST, dy_for_data}, {DNNL_ARG_DIFF_SRC, dx}})
      .flops = flops(i);
  add_gradient(input, dx);
}

void Lowering::backward_norm(int i, Tensor* dy) {
  const Node& node = graph_.node(i);
  Tensor* x = value(node.inputs[0]);
  Tensor* y = fuses_relu(i) ? value(i) : nullptr;
  Tensor* dx = tensor(x->desc());
  const auto [mean, variance] = batch_statistics_.at(i);
  const NormExtent extent = norm_extent(x->desc());
  Tensor* scratch = norm_scratch(extent);
  Tensor* scale = operand(node.parameters[0]);
  Tensor* scale_gradient = step_.slices[node.parameters[0]].gradient;
  Tensor* bias_gradient = step_.slices[node.parameters[1]].gradient;
  emit(node.name, Phase::backward, "own loop",
       {x, y, dy, scale, mean, variance, dx, scale_gradient, bias_gradient, scratch},
       [=, mean = mean, variance = variance, precision = options_.precision] {
         norm_backward(precision, extent,
                       {x->data(), y != nullptr ? y->data() : nullptr, dy->data(), scale->floats(),
                        mean->floats(), variance->floats(), dx->data(), scale_gradient->floats(),
                        bias_gradient->floats(), static_cast<double*>(scratch->data())});
       });
  add_gradient(node.inputs[0], dx);
}

void Lowering::backward_add(int i, Tensor* dy) {
  for (const int input : graph_.node(i).inputs) add_gradient(input, dy);
}

void Lowering::backward_relu(int i) {
  const int input = graph_.node(i).inputs[0];
  if (graph_.is(input, OpKind::batch_norm) && fuses_relu(input)) {
    if (Tensor* gradient = gradient_of(i)) add_gradient(input, gradient);
    return;
  }
  std::vector<Tensor*>& parts = gradients_[i];
  Tensor* other = nullptr;
  if (parts.size() == 2) {  // the sum and the ReLU in one loop
    other = parts.back();
    parts.pop_back();
  }
  Tensor* dy = gradient_of(i);
  if (dy == nullptr) return;
  Tensor* y = value(i);
  Tensor* dx = tensor(y->desc());
  const int64_t elements = y->bytes() / element_bytes(options_.precision);
  emit(graph_.node(i).name, Phase::backward, "own loop", {y, dy, other, dx},
       [=, precision = options_.precision] {
         relu_backward(precision, y->data(), dy->data(), other != nullptr ? other->data() : nullptr,
                       dx->data(), elements);
       });
  // A sum before the ReLU has no value of its own.
  const bool fused = graph_.is(input, OpKind::add) && values_[input] == nullptr;
  for (const int target : fused ? graph_.node(input).inputs : std::vector<int>{input}) {
    add_gradient(target, dx);
  }
}

void Lowering::backward_pool(int i, Tensor* dy) {
  const Node& node = graph_.node(i);
  const auto desc =
      describe_pooling_backward(place_, pools_.at(i), pooling_algorithm(node),
                                value(node.inputs[0])->desc(), dy->desc(), pool_window(node));
  Tensor* dx = tensor(desc.diff_src_desc());
  Arguments arguments{{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, dx}};
  if (workspaces_[i] != nullptr) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspaces_[i]);
  emit<dnnl::pooling_backward>(node.name, Phase::backward,
                               key(std::string(to_string(node.op)) + " backward", i), desc,
                               arguments);
  add_gradient(node.inputs[0], dx);
}

}  // namespace nearmetal::cpu
