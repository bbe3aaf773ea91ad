// The operations of transformers on tokens, and linear layers, also of whole samples.
#include <stdexcept>

#include "models/cpu/lowering.h"
#include "models/cpu/token_loops.h"

namespace nearmetal::cpu {
namespace {

constexpr const char* attention_implementation = "onednn sgemm, own softmax";

}  // namespace

Lowering::Desc Lowering::token_desc(int node) const {
  return {dims(node), type_, dnnl::memory::format_tag::nhwc};
}

Lowering::Desc Lowering::row_desc(int node) const {
  return {{rows(node), graph_.node(node).shape.channels}, type_, dnnl::memory::format_tag::nc};
}

Tensor* Lowering::token_value(int node, Phase phase) {
  return reordered(graph_.node(node).name, phase, value(node), token_desc(node));
}

TokenExtent Lowering::token_extent(int node) const {
  const Shape& shape = graph_.node(node).shape;
  return {options_.batch_size, shape.tokens(), shape.channels};
}

void Lowering::forward_layer_norm(int i) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  const auto desc =
      describe_layer_norm(place_, direction(), row_desc(i), static_cast<float>(node.epsilon));
  layer_norms_.emplace(i, desc);
  Tensor* x = token_value(input, Phase::forward);
  tensors_.values[i] = tensor(token_desc(i));
  Arguments arguments{{DNNL_ARG_SRC, as_rows(input, x)},
                      {DNNL_ARG_SCALE, vector_operand(node.parameters[0])},
                      {DNNL_ARG_SHIFT, vector_operand(node.parameters[1])},
                      {DNNL_ARG_DST, as_rows(i, tensors_.values[i])}};
  if (direction() == prop_kind::forward_training) {
    tensors_.workspaces[i] = tensor(vector(2 * rows(i)));
    for (const auto& statistics : layer_norm_statistics(i)) arguments.push_back(statistics);
  }
  emit<dnnl::layer_normalization_forward>(
      node.name, Phase::forward, key(std::string("layer_norm") + pass(), i), desc, arguments);
}

Lowering::Arguments Lowering::layer_norm_statistics(int i) {
  return {{DNNL_ARG_MEAN, view(tensors_.workspaces[i], vector(rows(i)))},
          {DNNL_ARG_VARIANCE, view(tensors_.workspaces[i], vector(rows(i)), 4 * rows(i))}};
}

void Lowering::backward_layer_norm(int i, Tensor* dy) {
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
  const auto desc = describe_gelu(place_, direction(), row_desc(i));
  gelus_.emplace(i, desc);
  Tensor* x = token_value(input, Phase::forward);
  tensors_.values[i] = tensor(token_desc(i));
  emit<dnnl::eltwise_forward>(
      node.name, Phase::forward, key(std::string("gelu") + pass(), i), desc,
      {{DNNL_ARG_SRC, as_rows(input, x)}, {DNNL_ARG_DST, as_rows(i, tensors_.values[i])}});
}

void Lowering::backward_gelu(int i, Tensor* dy) {
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
  const int input = node.inputs[0];
  Tensor* x = token_value(input, Phase::forward);
  Tensor* token = vector_operand(node.parameters[0]);
  Tensor* y = tensors_.values[i] = tensor(token_desc(i));
  emit_loop(i, Phase::forward, {x, token, y}, [=, extent = token_extent(input)] {
    prepend_token(extent, x->floats(), token->floats(), y->floats());
  });
}

void Lowering::backward_class_token(int i, Tensor* dy) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  Tensor* dx = tensor(token_desc(input));
  Tensor* token_gradient = step_.slices[node.parameters[0]].gradient;
  emit_loop(i, Phase::backward, {dy, dx, token_gradient}, [=, extent = token_extent(input)] {
    prepend_token_backward(extent, dy->floats(), dx->floats(), token_gradient->floats());
  });
  add_gradient(input, dx);
}

void Lowering::forward_positions(int i) {
  const Node& node = graph_.node(i);
  Tensor* x = token_value(node.inputs[0], Phase::forward);
  Tensor* positions = vector_operand(node.parameters[0]);
  Tensor* y = tensors_.values[i] = tensor(token_desc(i));
  emit_loop(i, Phase::forward, {x, positions, y}, [=, extent = token_extent(i)] {
    add_positions(extent, x->floats(), positions->floats(), y->floats());
  });
}

void Lowering::backward_positions(int i, Tensor* dy) {
  const Node& node = graph_.node(i);
  Tensor* gradient = step_.slices[node.parameters[0]].gradient;
  emit_loop(i, Phase::backward, {dy, gradient}, [=, extent = token_extent(i)] {
    sum_over_samples(extent, dy->floats(), extent.sample_elements(), gradient->floats());
  });
  add_gradient(node.inputs[0], dy);
}

void Lowering::forward_select_token(int i) {
  const Node& node = graph_.node(i);
  Tensor* x = token_value(node.inputs[0], Phase::forward);
  Tensor* y = tensors_.values[i] = tensor(token_desc(i));
  emit_loop(i, Phase::forward, {x, y}, [=, extent = token_extent(node.inputs[0])] {
    first_token(extent, x->floats(), y->floats());
  });
}

void Lowering::backward_select_token(int i, Tensor* dy) {
  const int input = graph_.node(i).inputs[0];
  Tensor* dx = tensor(token_desc(input));
  emit_loop(i, Phase::backward, {dy, dx}, [=, extent = token_extent(input)] {
    first_token_backward(extent, dy->floats(), dx->floats());
  });
  add_gradient(input, dx);
}

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
  const int weight = node.parameters[0], bias = node.parameters[1];
  Tensor* in = linear_input(node, Phase::forward);
  // Logits stay fp32: the loss takes their exponentials. Theirs is the plain layout.
  const bool are_logits = !of_tokens && graph_.are_logits(i);
  const Dims in_dims = dims_of(in->desc());
  const Desc outputs{{in_dims[0], node.shape.channels},
                     are_logits ? dnnl::memory::data_type::f32 : type_,
                     dnnl::memory::format_tag::nc};
  const auto desc = describe<dnnl::inner_product_forward>(
      place_, direction(), of_tokens ? in->desc() : any(in_dims), any(linear_weight_dims(node, in)),
      bias_desc(node), outputs);
  products_.emplace(i, desc);
  define_parameter(weight, desc.weights_desc());
  Tensor* x = reordered(node.name, Phase::forward, in, desc.src_desc());
  tensors_.values[i] = tensor(of_tokens ? token_desc(i) : outputs);
  if (graph_.consumers(i).empty()) step_.logits = tensors_.values[i];
  emit<dnnl::inner_product_forward>(
      node.name, Phase::forward, key(std::string(to_string(node.op)) + pass(), i), desc,
      {{DNNL_ARG_SRC, x},
       {DNNL_ARG_WEIGHTS, operand(weight)},
       {DNNL_ARG_BIAS, vector_operand(bias)},
       {DNNL_ARG_DST, of_tokens ? as_rows(i, tensors_.values[i]) : tensors_.values[i]}})
      .flops = flops(i);
}

void Lowering::backward_linear(int i, Tensor* gradient) {
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

AttentionExtent Lowering::attention_extent(const Node& node) const {
  return {options_.batch_size, node.shape.tokens(), node.heads, node.shape.channels / node.heads};
}

void Lowering::forward_attention(int i) {
  const Node& node = graph_.node(i);
  const AttentionExtent extent = attention_extent(node);
  Tensor* x = token_value(node.inputs[0], Phase::forward);
  Tensor* y = tensors_.values[i] = tensor(token_desc(i));
  const bool keeps = !options_.forward_only;
  const int64_t matrices = keeps ? extent.matrices() : options_.threads;
  Tensor* p = tensors_.workspaces[i] = tensor(vector(matrices * extent.matrix_elements()));
  emit(node.name, Phase::forward, attention_implementation, {x, p, y}, [=] {
    attention_forward(extent, x->floats(), p->floats(), keeps, y->floats());
  }).flops = flops(i);
}

void Lowering::backward_attention(int i, Tensor* dy) {
  const Node& node = graph_.node(i);
  const AttentionExtent extent = attention_extent(node);
  Tensor* x = token_value(node.inputs[0], Phase::backward);
  Tensor* p = tensors_.workspaces[i];
  Tensor* dx = tensor(token_desc(node.inputs[0]));
  Tensor* scratch = tensor(vector(options_.threads * extent.matrix_elements()));
  emit(node.name, Phase::backward, attention_implementation, {x, p, dy, scratch, dx}, [=] {
    attention_backward(extent, x->floats(), p->floats(), dy->floats(), scratch->floats(),
                       dx->floats());
  }).flops = 2 * flops(i);
  add_gradient(node.inputs[0], dx);
}

// The token ids of the micro-batch that is computed.
const int32_t* Lowering::ids_of(const StepState& state, int64_t first_sample, int64_t tokens) {
  return state.tokens.data() + (state.first_image + first_sample) * tokens;
}

void Lowering::forward_embedding(int i) {
  const Node& node = graph_.node(i);
  Tensor* words = vector_operand(node.parameters[0]);
  Tensor* positions = vector_operand(node.parameters[1]);
  Tensor* types = vector_operand(node.parameters[2]);
  Tensor* y = tensors_.values[i] = tensor(token_desc(i));
  const TokenExtent extent = token_extent(i);
  Operation& look_up =
      emit_loop(i, Phase::forward, {words, positions, types, y},
                [=, first = micro_batch_ * options_.batch_size, &state = state_] {
                  embed(extent, ids_of(state, first, extent.tokens),
                        {words->floats(), positions->floats(), types->floats()}, y->floats());
                });
  // It reads only those rows of the tables that belong to the tokens.
  const int64_t read = (extent.batch + 1) * extent.sample_elements();
  look_up.bytes = static_cast<double>(y->bytes() + 4 * read);
}

void Lowering::backward_embedding(int i, Tensor* dy) {
  const Node& node = graph_.node(i);
  const auto gradient = [&](int which) { return step_.slices[node.parameters[which]].gradient; };
  const auto count = [&](int which) { return graph_.parameters()[node.parameters[which]].dims[0]; };
  const EmbeddingRows rows{count(0), count(1), count(2)};
  Tensor *words = gradient(0), *positions = gradient(1), *types = gradient(2);
  emit_loop(
      i, Phase::backward, {dy, words, positions, types},
      [=, extent = token_extent(i), first = micro_batch_ * options_.batch_size, &state = state_] {
        embed_backward(extent, ids_of(state, first, extent.tokens), dy->floats(), rows,
                       {words->floats(), positions->floats(), types->floats()});
      });
}

void Lowering::forward_span_loss(int i) {
  const int input = graph_.node(i).inputs[0];
  if (!graph_.is(input, OpKind::token_linear)) {
    throw std::invalid_argument("the CPU backend takes the loss of spans of a linear layer alone");
  }
  Tensor* logits = value(input);
  Tensor* gradient = nullptr;
  if (!options_.forward_only) {
    gradient = tensor(token_desc(input));
    tensors_.gradients[input].push_back(gradient);
  }
  emit_loop(i, Phase::forward, {logits, gradient},
            [=, extent = token_extent(input), first = micro_batch_ * options_.batch_size,
             &state = state_] {
              const int64_t sample = state.first_image + first;
              span_loss(logits->floats(), state.labels.data() + 2 * sample, extent.batch,
                        extent.tokens, state.loss_scale / static_cast<float>(extent.batch),
                        state.losses.data() + sample,
                        gradient != nullptr ? gradient->floats() : nullptr);
            });
}

}  // namespace nearmetal::cpu
