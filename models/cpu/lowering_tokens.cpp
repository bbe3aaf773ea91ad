#include "models/cpu/lowering_tokens.h"

#include <cstdint>
#include <stdexcept>
#include <string>

#include "models/cpu/token_loops.h"

namespace nearmetal::cpu {
namespace {

constexpr const char* attention_implementation = "onednn sgemm, own softmax";

int64_t rows(const Lowering& to, int node) {
  return to.options.batch_size * to.graph.node(node).shape.tokens();
}

// Every value is [batch, tokens, features], features innermost.
Desc token_desc(const Lowering& to, int node) {
  return {to.dims(node), to.type, dnnl::memory::format_tag::nhwc};
}

// The same, as [batch x tokens, features].
Desc row_desc(const Lowering& to, int node) {
  return {
      {rows(to, node), to.graph.node(node).shape.channels}, to.type, dnnl::memory::format_tag::nc};
}

Tensor* token_value(Lowering& to, int node, Phase phase) {
  return to.reordered(to.graph.node(node).name, phase, to.value(node), token_desc(to, node));
}

Tensor* as_rows(Lowering& to, int node, Tensor* tensor) {
  return to.view(tensor, row_desc(to, node));
}

TokenExtent token_extent(const Lowering& to, int node) {
  const Shape& shape = to.graph.node(node).shape;
  return {to.options.batch_size, shape.tokens(), shape.channels};
}

// Mean and variance of each token, kept.
Arguments layer_norm_statistics(Lowering& to, int i) {
  return {{DNNL_ARG_MEAN, to.view(to.tensors.workspaces[i], fp32_vector(rows(to, i)))},
          {DNNL_ARG_VARIANCE,
           to.view(to.tensors.workspaces[i], fp32_vector(rows(to, i)), 4 * rows(to, i))}};
}

// The matrix that the product reads: rows of a sample's values, or of a token's.
Tensor* linear_input(Lowering& to, const Node& linear, Phase phase) {
  const int input = linear.inputs[0];
  if (linear.op != OpKind::token_linear) return to.value(input);
  return as_rows(to, input, token_value(to, input, phase));
}

// As many dimensions as its input has: a linear layer's own output has two.
Dims linear_weight_dims(const Node& linear, const Tensor* input) {
  Dims dims = dims_of(input->desc());
  dims[0] = linear.shape.channels;
  return dims;
}

AttentionExtent attention_extent(const Lowering& to, const Node& node) {
  return {to.options.batch_size, node.shape.tokens(), node.heads, node.shape.channels / node.heads};
}

// The token ids of the micro-batch that is computed.
const int32_t* ids_of(const StepState& state, int64_t first_sample, int64_t tokens) {
  return state.tokens.data() + (state.first_image + first_sample) * tokens;
}

}  // namespace

void forward_layer_norm(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  const int input = node.inputs[0];
  const auto desc = describe_layer_norm(to.place, to.direction(), row_desc(to, i),
                                        static_cast<float>(node.epsilon));
  to.layer_norms.emplace(i, desc);
  Tensor* x = token_value(to, input, Phase::forward);
  to.tensors.values[i] = to.tensor(token_desc(to, i));
  Arguments arguments{{DNNL_ARG_SRC, as_rows(to, input, x)},
                      {DNNL_ARG_SCALE, to.vector_operand(node.parameters[0])},
                      {DNNL_ARG_SHIFT, to.vector_operand(node.parameters[1])},
                      {DNNL_ARG_DST, as_rows(to, i, to.tensors.values[i])}};
  if (to.graph.is_trainable()) {
    to.tensors.workspaces[i] = to.tensor(fp32_vector(2 * rows(to, i)));
    for (const auto& statistics : layer_norm_statistics(to, i)) arguments.push_back(statistics);
  }
  to.emit<dnnl::layer_normalization_forward>(
      i, Phase::forward, std::string("layer_norm") + to.pass(), desc, arguments);
}

void backward_layer_norm(Lowering& to, int i, Tensor* dy) {
  const Node& node = to.graph.node(i);
  const int input = node.inputs[0];
  const auto desc = describe_layer_norm_backward(to.place, to.layer_norms.at(i), row_desc(to, i),
                                                 static_cast<float>(node.epsilon));
  Tensor* x = token_value(to, input, Phase::backward);
  Tensor* dx = to.tensor(token_desc(to, input));
  Arguments arguments{{DNNL_ARG_SRC, as_rows(to, input, x)},
                      {DNNL_ARG_DIFF_DST, as_rows(to, i, dy)},
                      {DNNL_ARG_SCALE, to.operand(node.parameters[0])},
                      {DNNL_ARG_SHIFT, to.operand(node.parameters[1])},  // not read, but demanded
                      {DNNL_ARG_DIFF_SRC, as_rows(to, input, dx)},
                      {DNNL_ARG_DIFF_SCALE, to.gradient(node.parameters[0])},
                      {DNNL_ARG_DIFF_SHIFT, to.gradient(node.parameters[1])}};
  for (const auto& statistics : layer_norm_statistics(to, i)) arguments.push_back(statistics);
  to.emit<dnnl::layer_normalization_backward>(i, Phase::backward, "layer_norm backward", desc,
                                              arguments);
  to.add_gradient(input, dx);
}

void forward_gelu(Lowering& to, int i) {
  const int input = to.graph.node(i).inputs[0];
  const auto desc = describe_gelu(to.place, to.direction(), row_desc(to, i));
  to.gelus.emplace(i, desc);
  Tensor* x = token_value(to, input, Phase::forward);
  to.tensors.values[i] = to.tensor(token_desc(to, i));
  to.emit<dnnl::eltwise_forward>(i, Phase::forward, std::string("gelu") + to.pass(), desc,
                                 {{DNNL_ARG_SRC, as_rows(to, input, x)},
                                  {DNNL_ARG_DST, as_rows(to, i, to.tensors.values[i])}});
}

void backward_gelu(Lowering& to, int i, Tensor* dy) {
  const int input = to.graph.node(i).inputs[0];
  const auto desc = describe_gelu_backward(to.place, to.gelus.at(i), row_desc(to, i));
  Tensor* x = token_value(to, input, Phase::backward);
  Tensor* dx = to.tensor(token_desc(to, input));
  to.emit<dnnl::eltwise_backward>(i, Phase::backward, "gelu backward", desc,
                                  {{DNNL_ARG_SRC, as_rows(to, input, x)},
                                   {DNNL_ARG_DIFF_DST, as_rows(to, i, dy)},
                                   {DNNL_ARG_DIFF_SRC, as_rows(to, input, dx)}});
  to.add_gradient(input, dx);
}

void forward_class_token(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  const int input = node.inputs[0];
  Tensor* x = token_value(to, input, Phase::forward);
  Tensor* token = to.vector_operand(node.parameters[0]);
  Tensor* y = to.tensors.values[i] = to.tensor(token_desc(to, i));
  to.emit_loop(i, Phase::forward, {x, token, y}, [=, extent = token_extent(to, input)] {
    prepend_token(extent, x->floats(), token->floats(), y->floats());
  });
}

void backward_class_token(Lowering& to, int i, Tensor* dy) {
  const Node& node = to.graph.node(i);
  const int input = node.inputs[0];
  Tensor* dx = to.tensor(token_desc(to, input));
  Tensor* token_gradient = to.gradient(node.parameters[0]);
  to.emit_loop(i, Phase::backward, {dy, dx, token_gradient}, [=, extent = token_extent(to, input)] {
    prepend_token_backward(extent, dy->floats(), dx->floats(), token_gradient->floats());
  });
  to.add_gradient(input, dx);
}

void forward_positions(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  Tensor* x = token_value(to, node.inputs[0], Phase::forward);
  Tensor* positions = to.vector_operand(node.parameters[0]);
  Tensor* y = to.tensors.values[i] = to.tensor(token_desc(to, i));
  to.emit_loop(i, Phase::forward, {x, positions, y}, [=, extent = token_extent(to, i)] {
    add_positions(extent, x->floats(), positions->floats(), y->floats());
  });
}

void backward_positions(Lowering& to, int i, Tensor* dy) {
  const Node& node = to.graph.node(i);
  Tensor* gradient = to.gradient(node.parameters[0]);
  to.emit_loop(i, Phase::backward, {dy, gradient}, [=, extent = token_extent(to, i)] {
    sum_over_samples(extent, dy->floats(), extent.sample_elements(), gradient->floats());
  });
  to.add_gradient(node.inputs[0], dy);
}

void forward_select_token(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  Tensor* x = token_value(to, node.inputs[0], Phase::forward);
  Tensor* y = to.tensors.values[i] = to.tensor(token_desc(to, i));
  to.emit_loop(i, Phase::forward, {x, y}, [=, extent = token_extent(to, node.inputs[0])] {
    first_token(extent, x->floats(), y->floats());
  });
}

void backward_select_token(Lowering& to, int i, Tensor* dy) {
  const int input = to.graph.node(i).inputs[0];
  Tensor* dx = to.tensor(token_desc(to, input));
  to.emit_loop(i, Phase::backward, {dy, dx}, [=, extent = token_extent(to, input)] {
    first_token_backward(extent, dy->floats(), dx->floats());
  });
  to.add_gradient(input, dx);
}

void forward_linear(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  const bool of_tokens = node.op == OpKind::token_linear;
  const int weight = node.parameters[0], bias = node.parameters[1];
  Tensor* in = linear_input(to, node, Phase::forward);
  // Logits stay fp32: the loss takes their exponentials. Theirs is the plain layout.
  const bool are_logits = !of_tokens && to.graph.are_logits(i);
  const Dims in_dims = dims_of(in->desc());
  const Desc outputs{{in_dims[0], node.shape.channels},
                     are_logits ? dnnl::memory::data_type::f32 : to.type,
                     dnnl::memory::format_tag::nc};
  const auto desc = describe<dnnl::inner_product_forward>(
      to.place, to.direction(), of_tokens ? in->desc() : to.any(in_dims),
      to.any(linear_weight_dims(node, in)), to.bias_desc(node), outputs);
  to.products.emplace(i, desc);
  to.define_parameter(weight, desc.weights_desc());
  Tensor* x = to.reordered(node.name, Phase::forward, in, desc.src_desc());
  to.tensors.values[i] = to.tensor(of_tokens ? token_desc(to, i) : outputs);
  if (to.graph.consumers(i).empty()) to.step.logits = to.tensors.values[i];
  to.emit<dnnl::inner_product_forward>(
      i, Phase::forward, std::string(to_string(node.op)) + to.pass(), desc,
      {{DNNL_ARG_SRC, x},
       {DNNL_ARG_WEIGHTS, to.operand(weight)},
       {DNNL_ARG_BIAS, to.vector_operand(bias)},
       {DNNL_ARG_DST, of_tokens ? as_rows(to, i, to.tensors.values[i]) : to.tensors.values[i]}});
}

void backward_linear(Lowering& to, int i, Tensor* gradient) {
  const Node& node = to.graph.node(i);
  const bool of_tokens = node.op == OpKind::token_linear;
  const int input = node.inputs[0], weight = node.parameters[0], bias = node.parameters[1];
  Tensor* in = linear_input(to, node, Phase::backward);
  Tensor* dy = of_tokens ? as_rows(to, i, gradient) : gradient;
  const Desc in_desc = of_tokens ? in->desc() : to.any(dims_of(in->desc()));
  const Dims weight_dims = linear_weight_dims(node, in);
  const std::string what = to_string(node.op);
  const auto& hint = to.products.at(i);
  Tensor* db = to.gradient(bias);
  const auto weights = describe_backward<dnnl::inner_product_backward_weights>(
      to.place, hint, in_desc, any_fp32(weight_dims), db->desc(), dy->desc());
  Tensor* x = to.reordered(node.name, Phase::backward, in, weights.src_desc());
  Tensor* dw = to.gradient_target(weight, weights.diff_weights_desc());
  to.emit<dnnl::inner_product_backward_weights>(i, Phase::backward, what + " backward_weights",
                                                weights,
                                                {{DNNL_ARG_SRC, x},
                                                 {DNNL_ARG_DIFF_DST, dy},
                                                 {DNNL_ARG_DIFF_WEIGHTS, dw},
                                                 {DNNL_ARG_DIFF_BIAS, db}});
  to.store_gradient(node.name, weight, dw);

  const auto data = describe_backward<dnnl::inner_product_backward_data>(
      to.place, hint, in_desc, to.any(weight_dims), dy->desc());
  Tensor* w = to.reordered(node.name, Phase::backward, to.operand(weight), data.weights_desc());
  Tensor* dx = to.tensor(of_tokens ? token_desc(to, input) : data.diff_src_desc());
  to.emit<dnnl::inner_product_backward_data>(
      i, Phase::backward, what + " backward_data", data,
      {{DNNL_ARG_WEIGHTS, w},
       {DNNL_ARG_DIFF_DST, dy},
       {DNNL_ARG_DIFF_SRC, of_tokens ? as_rows(to, input, dx) : dx}});
  to.add_gradient(input, dx);
}

void forward_attention(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  const AttentionExtent extent = attention_extent(to, node);
  Tensor* x = token_value(to, node.inputs[0], Phase::forward);
  Tensor* y = to.tensors.values[i] = to.tensor(token_desc(to, i));
  const bool keeps = !to.options.forward_only;
  const int64_t matrices = keeps ? extent.matrices() : to.options.threads;
  Tensor* p = to.tensors.workspaces[i] =
      to.tensor(fp32_vector(matrices * extent.matrix_elements()));
  to.emit(node.name, Phase::forward, attention_implementation, {x, p, y}, [=] {
      attention_forward(extent, x->floats(), p->floats(), keeps, y->floats());
    }).flops = to.flops(i);
}

void backward_attention(Lowering& to, int i, Tensor* dy) {
  const Node& node = to.graph.node(i);
  const AttentionExtent extent = attention_extent(to, node);
  Tensor* x = token_value(to, node.inputs[0], Phase::backward);
  Tensor* p = to.tensors.workspaces[i];
  Tensor* dx = to.tensor(token_desc(to, node.inputs[0]));
  Tensor* scratch = to.tensor(fp32_vector(to.options.threads * extent.matrix_elements()));
  to.emit(node.name, Phase::backward, attention_implementation, {x, p, dy, scratch, dx}, [=] {
      attention_backward(extent, x->floats(), p->floats(), dy->floats(), scratch->floats(),
                         dx->floats());
    }).flops = 2 * to.flops(i);
  to.add_gradient(node.inputs[0], dx);
}

void forward_embedding(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  Tensor* words = to.vector_operand(node.parameters[0]);
  Tensor* positions = to.vector_operand(node.parameters[1]);
  Tensor* types = to.vector_operand(node.parameters[2]);
  Tensor* y = to.tensors.values[i] = to.tensor(token_desc(to, i));
  const TokenExtent extent = token_extent(to, i);
  Operation& look_up =
      to.emit_loop(i, Phase::forward, {words, positions, types, y},
                   [=, first = to.micro_batch * to.options.batch_size, &state = to.state] {
                     embed(extent, ids_of(state, first, extent.tokens),
                           {words->floats(), positions->floats(), types->floats()}, y->floats());
                   });
  // It reads only those rows of the tables that belong to the tokens.
  const int64_t read = (extent.batch + 1) * extent.sample_elements();
  look_up.bytes = static_cast<double>(y->bytes() + 4 * read);
}

void backward_embedding(Lowering& to, int i, Tensor* dy) {
  const Node& node = to.graph.node(i);
  const auto gradient = [&](int which) { return to.gradient(node.parameters[which]); };
  const auto count = [&](int which) {
    return to.graph.parameters()[node.parameters[which]].dims[0];
  };
  const EmbeddingRows rows{count(0), count(1), count(2)};
  Tensor *words = gradient(0), *positions = gradient(1), *types = gradient(2);
  to.emit_loop(i, Phase::backward, {dy, words, positions, types},
               [=, extent = token_extent(to, i), first = to.micro_batch * to.options.batch_size,
                &state = to.state] {
                 embed_backward(extent, ids_of(state, first, extent.tokens), dy->floats(), rows,
                                {words->floats(), positions->floats(), types->floats()});
               });
}

void forward_span_loss(Lowering& to, int i) {
  const int input = to.graph.node(i).inputs[0];
  if (!to.graph.is(input, OpKind::token_linear)) {
    throw std::invalid_argument("the CPU backend takes the loss of spans of a linear layer alone");
  }
  Tensor* logits = to.value(input);
  Tensor* gradient = to.loss_gradient(input, token_desc(to, input));
  to.emit_loop(i, Phase::forward, {logits, gradient},
               [=, extent = token_extent(to, input), first = to.micro_batch * to.options.batch_size,
                &state = to.state] {
                 const int64_t sample = state.first_image + first;
                 span_loss(logits->floats(), state.labels.data() + 2 * sample, extent.batch,
                           extent.tokens, state.loss_scale / static_cast<float>(extent.batch),
                           state.losses.data() + sample,
                           gradient != nullptr ? gradient->floats() : nullptr);
               });
}

}  // namespace nearmetal::cpu
