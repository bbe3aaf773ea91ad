// Linear layers, of all values of a sample or of each token.
#include "models/cpu/lowering_state.h"

namespace nearmetal::cpu {

Tensor* Lowering::linear_input(const Node& linear, Phase phase) {
  const int input = linear.inputs[0];
  if (linear.op != OpKind::token_linear) return value(input);
  return as_rows(input, token_value(input, phase));
}

// As many dimensions as its input has: a linear layer's own output has two.
Lowering::Dims Lowering::linear_weight_dims(const Node& linear, const Tensor* input) const {
  Dims dims = dims_of(input->desc());
  dims[0] = linear.shape.channels;
  return dims;
}

void Lowering::forward_linear(int i) {
  const Node& node = graph_.node(i);
  const bool of_tokens = node.op == OpKind::token_linear;
  if (of_tokens) require_fp32(node);
  const int weight = node.parameters[0], bias = node.parameters[1];
  Tensor* in = linear_input(node, Phase::forward);
  // Logits stay fp32: the loss takes their exponentials. Theirs is the plain layout.
  const bool are_logits = !of_tokens && graph_.are_logits(i);
  const Dims in_dims = dims_of(in->desc());
  const Desc outputs{{in_dims[0], node.shape.channels},
                     are_logits ? dnnl::memory::data_type::f32 : type_,
                     dnnl::memory::format_tag::nc};
  define_vector(bias);
  const auto desc = describe<dnnl::inner_product_forward>(
      place_, direction(), of_tokens ? in->desc() : any(in_dims), any(linear_weight_dims(node, in)),
      bias_desc(node), outputs);
  products_.emplace(i, desc);
  define_parameter(weight, desc.weights_desc());
  Tensor* x = reordered(node.name, Phase::forward, in, desc.src_desc());
  values_[i] = tensor(of_tokens ? token_desc(i) : outputs);
  if (graph_.consumers(i).empty()) step_.logits = values_[i];
  emit<dnnl::inner_product_forward>(
      node.name, Phase::forward, key(std::string(to_string(node.op)) + pass(), i), desc,
      {{DNNL_ARG_SRC, x},
       {DNNL_ARG_WEIGHTS, operand(weight)},
       {DNNL_ARG_BIAS, operand(bias)},
       {DNNL_ARG_DST, of_tokens ? as_rows(i, values_[i]) : values_[i]}})
      .flops = flops(i);
}

void Lowering::backward_linear(int i) {
  Tensor* gradient = gradient_of(i);
  if (gradient == nullptr) return;
  const Node& node = graph_.node(i);
  const bool of_tokens = node.op == OpKind::token_linear;
  const int input = node.inputs[0], weight = node.parameters[0], bias = node.parameters[1];
  Tensor* in = linear_input(node, Phase::backward);
  Tensor* dy = of_tokens ? as_rows(i, gradient) : gradient;
  const Desc in_desc = of_tokens ? in->desc() : any(dims_of(in->desc()));
  const Dims weight_dims = linear_weight_dims(node, in);
  const std::string what = to_string(node.op);
  const auto& hint = products_.at(i);
  Tensor* db = step_.slices[bias].gradient;
  const auto weights = describe_backward<dnnl::inner_product_backward_weights>(
      place_, hint, in_desc, any_fp32(weight_dims), db->desc(), dy->desc());
  Tensor* x = reordered(node.name, Phase::backward, in, weights.src_desc());
  Tensor* dw = gradient_target(weight, weights.diff_weights_desc());
  emit<dnnl::inner_product_backward_weights>(node.name, Phase::backward,
                                             key(what + " backward_weights", i), weights,
                                             {{DNNL_ARG_SRC, x},
                                              {DNNL_ARG_DIFF_DST, dy},
                                              {DNNL_ARG_DIFF_WEIGHTS, dw},
                                              {DNNL_ARG_DIFF_BIAS, db}})
      .flops = flops(i);
  store_gradient(node.name, weight, dw);

  const auto data = describe_backward<dnnl::inner_product_backward_data>(
      place_, hint, in_desc, any(weight_dims), dy->desc());
  Tensor* w = reordered(node.name, Phase::backward, operand(weight), data.weights_desc());
  Tensor* dx = tensor(of_tokens ? token_desc(input) : data.diff_src_desc());
  emit<dnnl::inner_product_backward_data>(
      node.name, Phase::backward, key(what + " backward_data", i), data,
      {{DNNL_ARG_WEIGHTS, w},
       {DNNL_ARG_DIFF_DST, dy},
       {DNNL_ARG_DIFF_SRC, of_tokens ? as_rows(input, dx) : dx}})
      .flops = flops(i);
  add_gradient(input, dx);
}

}  // namespace nearmetal::cpu
