#include "models/cpu/lowering_state.h"

namespace nearmetal::cpu {

Lowering::Dims Lowering::linear_weight_dims(const Node& linear) {
  Dims dims = value(linear.inputs[0])->desc().dims();
  dims[0] = linear.shape.channels;
  return dims;
}

void Lowering::forward_linear(int i) {
  const Node& node = graph_.node(i);
  const int weight = node.parameters[0], bias = node.parameters[1];
  // Logits stay fp32: the loss takes their exponentials. Theirs is the plain layout.
  const bool are_logits = graph_.are_logits(i);
  const Desc outputs{{options_.batch_size, node.shape.channels},
                     are_logits ? dnnl::memory::data_type::f32 : type_,
                     dnnl::memory::format_tag::nc};
  define_vector(bias);
  const dnnl::inner_product_forward::primitive_desc desc(
      {direction(), any(value(node.inputs[0])->desc().dims()), any(linear_weight_dims(node)),
       bias_desc(node), outputs},
      attributes_, engine_);
  products_.emplace(i, desc);
  define_parameter(weight, desc.weights_desc());
  Tensor* x = reordered(node.name, Phase::forward, value(node.inputs[0]), desc.src_desc());
  values_[i] = tensor(outputs);
  if (graph_.consumers(i).empty()) step_.logits = values_[i];
  emit<dnnl::inner_product_forward>(node.name, Phase::forward,
                                    key(std::string("linear") + pass(), i), desc,
                                    {{DNNL_ARG_SRC, x},
                                     {DNNL_ARG_WEIGHTS, operand(weight)},
                                     {DNNL_ARG_BIAS, operand(bias)},
                                     {DNNL_ARG_DST, values_[i]}})
      .flops = flops(i);
}

void Lowering::backward_linear(int i) {
  Tensor* dy = gradient_of(i);
  if (dy == nullptr) return;
  const Node& node = graph_.node(i);
  const int input = node.inputs[0], weight = node.parameters[0], bias = node.parameters[1];
  const Dims input_dims = value(input)->desc().dims(), weight_dims = linear_weight_dims(node);
  const auto& hint = products_.at(i);
  Tensor* db = step_.slices[bias].gradient;
  const dnnl::inner_product_backward_weights::primitive_desc weights(
      {any(input_dims), any_fp32(weight_dims), db->desc(), dy->desc()}, attributes_, engine_, hint);
  Tensor* x = reordered(node.name, Phase::backward, value(input), weights.src_desc());
  Tensor* dw = gradient_target(weight, weights.diff_weights_desc());
  emit<dnnl::inner_product_backward_weights>(node.name, Phase::backward,
                                             key("linear backward_weights", i), weights,
                                             {{DNNL_ARG_SRC, x},
                                              {DNNL_ARG_DIFF_DST, dy},
                                              {DNNL_ARG_DIFF_WEIGHTS, dw},
                                              {DNNL_ARG_DIFF_BIAS, db}})
      .flops = flops(i);
  store_gradient(node.name, weight, dw);

  const dnnl::inner_product_backward_data::primitive_desc data(
      {any(input_dims), any(weight_dims), dy->desc()}, attributes_, engine_, hint);
  Tensor* w = reordered(node.name, Phase::backward, operand(weight), data.weights_desc());
  Tensor* dx = tensor(data.diff_src_desc());
  emit<dnnl::inner_product_backward_data>(
      node.name, Phase::backward, key("linear backward_data", i), data,
      {{DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, dx}})
      .flops = flops(i);
  add_gradient(input, dx);
}

}  // namespace nearmetal::cpu
