#include <algorithm>
#include <stdexcept>

#include "models/cpu/loops.h"
#include "models/cpu/lowering_state.h"

namespace nearmetal::cpu {

using dnnl::algorithm;

namespace {

// oneDNN's ReLU of slope 0 takes a maximum, which makes 0 of NaN. That of another slope multiplies
// what is not above 0, and keeps it; no value is so large that this slope's part of it shows.
constexpr float slope_that_keeps_nan = 1e-30F;

}  // namespace

void Lowering::forward(int i) {
  const Node& node = graph_.node(i);
  switch (node.op) {
    case OpKind::input:
    case OpKind::token_ids:  // no tensor: they lie in the state
      return;
    case OpKind::embedding:
      return forward_embedding(i);
    case OpKind::boundary:
      return forward_boundary(i);
    case OpKind::conv:
      return forward_convolution(i);
    case OpKind::batch_norm:
      return forward_norm(i);
    case OpKind::relu:
      return forward_relu(i);
    case OpKind::add:
      if (values_[i] != nullptr) return;  // with the convolution before it
      if (!graph_.is(graph_.sole_consumer(i), OpKind::relu)) forward_add(i, i, false);
      return;
    case OpKind::max_pool:
    case OpKind::global_average_pool:
      return forward_pool(i);
    case OpKind::linear:
    case OpKind::token_linear:
      return forward_linear(i);
    case OpKind::layer_norm:
      return forward_layer_norm(i);
    case OpKind::gelu:
      return forward_gelu(i);
    case OpKind::attention:
      return forward_attention(i);
    case OpKind::class_token:
      return forward_class_token(i);
    case OpKind::positions:
      return forward_positions(i);
    case OpKind::select_token:
      return forward_select_token(i);
    case OpKind::softmax_cross_entropy:
      return forward_loss(i);
    case OpKind::span_loss:
      return forward_span_loss(i);
  }
}

Tensor* Lowering::value(int node) {
  if (values_[node] == nullptr) {
    if (!graph_.is(node, OpKind::input)) throw std::logic_error("a node reads a later one");
    values_[node] = tensor({dims(node), type_, dnnl::memory::format_tag::nchw});
  }
  return values_[node];
}

Lowering::Epilogue Lowering::epilogue_of(int conv) const {
  Epilogue epilogue{conv};
  if (graph_.is_trainable()) return epilogue;
  int consumer = graph_.sole_consumer(conv);
  if (graph_.is(consumer, OpKind::add)) {
    const std::vector<int>& added = graph_.node(consumer).inputs;
    const int other = added[0] == conv ? added[1] : added[0];
    const bool is_read = std::ranges::any_of(
        graph_.consumers(other), [&](int reader) { return reader >= conv && reader != consumer; });
    const bool stays = graph_.is(other, OpKind::input);  // from step to step
    if (values_[other] == nullptr || is_read || stays) return epilogue;
    epilogue = {consumer, other};
    consumer = graph_.sole_consumer(consumer);
  }
  if (graph_.is(consumer, OpKind::relu)) {
    epilogue.output = consumer;
    epilogue.relu = true;
  }
  return epilogue;
}

dnnl::primitive_attr Lowering::attributes_for(const Epilogue& epilogue) const {
  dnnl::post_ops operations;
  if (epilogue.residual >= 0) operations.append_sum();
  if (epilogue.relu) append_relu(operations, slope_that_keeps_nan);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_post_ops(operations);
  return attributes;
}

void Lowering::forward_convolution(int i) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  const Dims strides{node.window.stride, node.window.stride};
  const Dims padding{node.window.padding, node.window.padding};
  const Dims weight_dims = graph_.parameters()[node.parameters[0]].dims;
  const Epilogue epilogue = epilogue_of(i);
  Tensor* residual = epilogue.residual >= 0 ? values_[epilogue.residual] : nullptr;
  const auto desc = describe<dnnl::convolution_forward>(
      {engine_, attributes_for(epilogue)}, direction(), algorithm::convolution_direct,
      any(dims(input)), any(weight_dims), bias_desc(node),
      residual != nullptr ? residual->desc() : any(dims(i)), strides, padding, padding);
  convolutions_.emplace(i, desc);
  if (graph_.is(input, OpKind::input) && values_[input] == nullptr) {
    values_[input] = tensor(desc.src_desc());
  }
  define_parameter(node.parameters[0], desc.weights_desc());
  Tensor* x = reordered(node.name, Phase::forward, value(input), desc.src_desc());
  Tensor* y = values_[epilogue.output] = residual != nullptr ? residual : tensor(desc.dst_desc());
  Arguments arguments{
      {DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, operand(node.parameters[0])}, {DNNL_ARG_DST, y}};
  if (node.has_bias()) {
    define_vector(node.parameters[1]);
    arguments.emplace_back(DNNL_ARG_BIAS, operand(node.parameters[1]));
  }
  std::string name = node.name, what = std::string("conv") + pass();
  if (residual != nullptr) what += "+sum";
  if (epilogue.relu) what += "+relu";
  if (epilogue.output != i) name += " + " + graph_.node(epilogue.output).name;
  emit<dnnl::convolution_forward>(name, Phase::forward, key(what, i), desc, arguments).flops =
      flops(i);
}

void Lowering::forward_norm(int i) {
  const Node& node = graph_.node(i);
  Tensor* x = value(node.inputs[0]);
  const int relu = graph_.sole_consumer(i);
  const bool with_relu = fuses_relu(i);
  for (const int parameter : node.parameters) define_vector(parameter);

  int64_t& end = step_.bytes(Region::statistics);
  const int64_t padded = (node.shape.channels + 15) / 16 * 16;
  if (micro_batch_ == 0) {
    step_.norms.push_back({end / 4, padded, node.shape.channels,
                           options_.batch_size * node.shape.height * node.shape.width});
  }
  Tensor* mean = tensor(vector(node.shape.channels), Region::statistics, end);
  Tensor* variance = tensor(vector(node.shape.channels), Region::statistics, end + 4 * padded);
  end += 2 * 4 * padded;
  batch_statistics_[i] = {mean, variance};

  const NormExtent extent = norm_extent(x->desc());
  Tensor* y = values_[i] = tensor(x->desc());
  if (with_relu) values_[relu] = y;
  Tensor* scale = operand(node.parameters[0]);
  Tensor* bias = operand(node.parameters[1]);
  Tensor* scratch = norm_scratch(extent);
  emit(with_relu ? node.name + " + " + graph_.node(relu).name : node.name, Phase::forward,
       "own loop", {x, scale, bias, y, mean, variance, scratch},
       [=, precision = options_.precision] {
         norm_forward(precision, extent,
                      {x->data(), scale->floats(), bias->floats(), with_relu, y->data(),
                       mean->floats(), variance->floats(), static_cast<double*>(scratch->data())});
       });
}

void Lowering::forward_add(int i, int output, bool relu) {
  const Node& node = graph_.node(i);
  Tensor* left = value(node.inputs[0]);
  Tensor* right = reordered(node.name, Phase::forward, value(node.inputs[1]), left->desc());
  // In place where nothing else reads the left summand: batch norm's backward pass needs its input
  // and, without a ReLU of its own, not its output.
  const int source = node.inputs[0];
  const bool in_place =
      graph_.is(source, OpKind::batch_norm) && graph_.consumers(source).size() == 1;
  Tensor* out = in_place ? left : tensor(left->desc());
  values_[output] = out;
  const std::string name = relu ? node.name + " + " + graph_.node(output).name : node.name;
  const int64_t elements = left->bytes() / element_bytes(options_.precision);
  emit(name, Phase::forward, "own loop", {left, right, out}, [=, precision = options_.precision] {
    add(precision, left->data(), right->data(), relu, out->data(), elements);
  });
}

void Lowering::forward_relu(int i) {
  const int input = graph_.node(i).inputs[0];
  if (values_[i] != nullptr) return;  // with the batch norm before it
  if (graph_.is(input, OpKind::add) && graph_.sole_consumer(input) == i)
    return forward_add(input, i, true);
  Tensor* x = value(input);
  Tensor* y = values_[i] = tensor(x->desc());
  const int64_t elements = x->bytes() / element_bytes(options_.precision);
  emit(graph_.node(i).name, Phase::forward, "own loop", {x, y},
       [=, precision = options_.precision] {
         cpu::relu(precision, x->data(), y->data(), elements);
       });
}

PoolWindow Lowering::pool_window(const Node& node) const {
  const Shape& in = graph_.input_shape(node);
  if (node.op == OpKind::global_average_pool) return {{1, 1}, {in.height, in.width}, {0, 0}};
  const Window& window = node.window;
  return {{window.stride, window.stride},
          {window.kernel, window.kernel},
          {window.padding, window.padding}};
}

void Lowering::forward_pool(int i) {
  const Node& node = graph_.node(i);
  Tensor* x = value(node.inputs[0]);
  const auto desc = describe_pooling(place_, direction(), pooling_algorithm(node), x->desc(),
                                     any(dims(i)), pool_window(node));
  pools_.emplace(i, desc);
  values_[i] = tensor(desc.dst_desc());
  Arguments arguments{{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, values_[i]}};
  if (desc.workspace_desc().get_size() > 0) {
    workspaces_[i] = tensor(desc.workspace_desc());
    arguments.emplace_back(DNNL_ARG_WORKSPACE, workspaces_[i]);
  }
  emit<dnnl::pooling_forward>(node.name, Phase::forward,
                              key(to_string(node.op) + std::string(pass()), i), desc, arguments);
}

void Lowering::forward_loss(int i) {
  const int input = graph_.node(i).inputs[0];
  if (!graph_.is(input, OpKind::linear)) {
    throw std::invalid_argument("the CPU backend takes the loss of a linear layer alone");
  }
  const int64_t batch = options_.batch_size, classes = graph_.classes();
  Tensor* logits = value(input);
  Tensor* gradient = nullptr;
  if (!options_.forward_only) {
    gradient = tensor({{batch, classes}, type_, dnnl::memory::format_tag::nc});
    gradients_[input].push_back(gradient);
  }
  emit(graph_.node(i).name, Phase::forward, "own loop", {logits, gradient},
       [=, precision = options_.precision, first = micro_batch_ * batch, &state = state_] {
         const int64_t image = state.first_image + first;
         softmax_loss(precision, static_cast<const float*>(logits->data()),
                      state.labels.data() + image, batch, classes,
                      state.loss_scale / static_cast<float>(batch), state.losses.data() + image,
                      gradient != nullptr ? gradient->data() : nullptr);
       });
}

void Lowering::update_statistics() {
  if (step_.norms.empty()) return;
  Tensor* first = batch_statistics_.begin()->second.first;  // where those of the micro-batch begin
  emit("running statistics", Phase::forward, "own loop", {},
       [first, norms = step_.norms, &state = state_] {
         update_running_statistics(norms, static_cast<const float*>(first->data()),
                                   state.running_statistics.data());
       })
      .bytes = 3.0 * 4 * static_cast<double>(step_.statistics_elements());
}

}  // namespace nearmetal::cpu
