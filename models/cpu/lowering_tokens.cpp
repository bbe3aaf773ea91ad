// The operations of transformers on tokens, except products and attention.
#include <stdexcept>

#include "models/cpu/lowering_state.h"
#include "models/cpu/token_loops.h"

namespace nearmetal::cpu {

Lowering::Desc Lowering::token_desc(int node) const {
  return {dims(node), type_, dnnl::memory::format_tag::nhwc};
}

Lowering::Desc Lowering::row_desc(int node) const {
  return {{rows(node), graph_.node(node).shape.channels}, type_, dnnl::memory::format_tag::nc};
}

Tensor* Lowering::token_value(int node, Phase phase) {
  return reordered(graph_.node(node).name, phase, value(node), token_desc(node));
}

void Lowering::require_fp32(const Node& node) const {
  if (options_.precision == Precision::fp32) return;
  throw std::invalid_argument("the CPU backend computes '" + node.name +
                              "' in fp32 alone, not in " + to_string(options_.precision) +
                              ": use fp32");
}

TokenExtent Lowering::token_extent(int node) const {
  const Shape& shape = graph_.node(node).shape;
  return {options_.batch_size, shape.tokens(), shape.channels};
}

void Lowering::forward_layer_norm(int i) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  require_fp32(node);
  for (const int parameter : node.parameters) define_vector(parameter);
  const auto desc =
      describe_layer_norm(place_, direction(), row_desc(i), static_cast<float>(node.epsilon));
  layer_norms_.emplace(i, desc);
  Tensor* x = token_value(input, Phase::forward);
  values_[i] = tensor(token_desc(i));
  Arguments arguments{{DNNL_ARG_SRC, as_rows(input, x)},
                      {DNNL_ARG_SCALE, operand(node.parameters[0])},
                      {DNNL_ARG_SHIFT, operand(node.parameters[1])},
                      {DNNL_ARG_DST, as_rows(i, values_[i])}};
  if (direction() == prop_kind::forward_training) {
    workspaces_[i] = tensor(vector(2 * rows(i)));
    for (const auto& statistics : layer_norm_statistics(i)) arguments.push_back(statistics);
  }
  emit<dnnl::layer_normalization_forward>(
      node.name, Phase::forward, key(std::string("layer_norm") + pass(), i), desc, arguments);
}

Lowering::Arguments Lowering::layer_norm_statistics(int i) {
  return {{DNNL_ARG_MEAN, view(workspaces_[i], vector(rows(i)))},
          {DNNL_ARG_VARIANCE, view(workspaces_[i], vector(rows(i)), 4 * rows(i))}};
}

void Lowering::backward_layer_norm(int i) {
  Tensor* dy = gradient_of(i);
  if (dy == nullptr) return;
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  const auto desc = describe_layer_norm_backward(place_, layer_norms_.at(i), row_desc(i),
                                                 static_cast<float>(node.epsilon));
  Tensor* x = token_value(input, Phase::backward);
  Tensor* dx = tensor(token_desc(input));
  Arguments arguments{{DNNL_ARG_SRC, as_rows(input, x)},
                      {DNNL_ARG_DIFF_DST, as_rows(i, dy)},
                      {DNNL_ARG_SCALE, operand(node.parameters[0])},
                      {DNNL_ARG_SHIFT, operand(node.parameters[1])},  // not read, but demanded
                      {DNNL_ARG_DIFF_SRC, as_rows(input, dx)},
                      {DNNL_ARG_DIFF_SCALE, step_.slices[node.parameters[0]].gradient},
                      {DNNL_ARG_DIFF_SHIFT, step_.slices[node.parameters[1]].gradient}};
  for (const auto& statistics : layer_norm_statistics(i)) arguments.push_back(statistics);
  emit<dnnl::layer_normalization_backward>(node.name, Phase::backward,
                                           key("layer_norm backward", i), desc, arguments);
  add_gradient(input, dx);
}

void Lowering::forward_gelu(int i) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  require_fp32(node);
  const auto desc = describe_gelu(place_, direction(), row_desc(i));
  gelus_.emplace(i, desc);
  Tensor* x = token_value(input, Phase::forward);
  values_[i] = tensor(token_desc(i));
  emit<dnnl::eltwise_forward>(
      node.name, Phase::forward, key(std::string("gelu") + pass(), i), desc,
      {{DNNL_ARG_SRC, as_rows(input, x)}, {DNNL_ARG_DST, as_rows(i, values_[i])}});
}

void Lowering::backward_gelu(int i) {
  Tensor* dy = gradient_of(i);
  if (dy == nullptr) return;
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  const auto desc = describe_gelu_backward(place_, gelus_.at(i), row_desc(i));
  Tensor* x = token_value(input, Phase::backward);
  Tensor* dx = tensor(token_desc(input));
  emit<dnnl::eltwise_backward>(node.name, Phase::backward, key("gelu backward", i), desc,
                               {{DNNL_ARG_SRC, as_rows(input, x)},
                                {DNNL_ARG_DIFF_DST, as_rows(i, dy)},
                                {DNNL_ARG_DIFF_SRC, as_rows(input, dx)}});
  add_gradient(input, dx);
}

void Lowering::forward_class_token(int i) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0], parameter = node.parameters[0];
  require_fp32(node);
  define_vector(parameter);
  Tensor* x = token_value(input, Phase::forward);
  Tensor* y = values_[i] = tensor(token_desc(i));
  emit(node.name, Phase::forward, "own loop", {x, operand(parameter), y},
       [=, extent = token_extent(input), token = operand(parameter)] {
         prepend_token(extent, x->floats(), token->floats(), y->floats());
       });
}

void Lowering::backward_class_token(int i) {
  Tensor* dy = gradient_of(i);
  if (dy == nullptr) return;
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  Tensor* dx = tensor(token_desc(input));
  Tensor* token_gradient = step_.slices[node.parameters[0]].gradient;
  emit(node.name, Phase::backward, "own loop", {dy, dx, token_gradient},
       [=, extent = token_extent(input)] {
         prepend_token_backward(extent, dy->floats(), dx->floats(), token_gradient->floats());
       });
  add_gradient(input, dx);
}

void Lowering::forward_positions(int i) {
  const Node& node = graph_.node(i);
  const int parameter = node.parameters[0];
  require_fp32(node);
  define_vector(parameter);
  Tensor* x = token_value(node.inputs[0], Phase::forward);
  Tensor* y = values_[i] = tensor(token_desc(i));
  emit(node.name, Phase::forward, "own loop", {x, operand(parameter), y},
       [=, extent = token_extent(i), positions = operand(parameter)] {
         add_positions(extent, x->floats(), positions->floats(), y->floats());
       });
}

void Lowering::backward_positions(int i) {
  Tensor* dy = gradient_of(i);
  if (dy == nullptr) return;
  const Node& node = graph_.node(i);
  Tensor* gradient = step_.slices[node.parameters[0]].gradient;
  emit(node.name, Phase::backward, "own loop", {dy, gradient}, [=, extent = token_extent(i)] {
    sum_over_samples(extent, dy->floats(), extent.sample_elements(), gradient->floats());
  });
  add_gradient(node.inputs[0], dy);
}

void Lowering::forward_select_token(int i) {
  const Node& node = graph_.node(i);
  require_fp32(node);
  Tensor* x = token_value(node.inputs[0], Phase::forward);
  Tensor* y = values_[i] = tensor(token_desc(i));
  emit(node.name, Phase::forward, "own loop", {x, y}, [=, extent = token_extent(node.inputs[0])] {
    first_token(extent, x->floats(), y->floats());
  });
}

void Lowering::backward_select_token(int i) {
  Tensor* dy = gradient_of(i);
  if (dy == nullptr) return;
  const int input = graph_.node(i).inputs[0];
  Tensor* dx = tensor(token_desc(input));
  emit(graph_.node(i).name, Phase::backward, "own loop", {dy, dx},
       [=, extent = token_extent(input)] {
         first_token_backward(extent, dy->floats(), dx->floats());
       });
  add_gradient(input, dx);
}

}  // namespace nearmetal::cpu
