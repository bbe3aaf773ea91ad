// The operations of convolutional networks on images.
#include <algorithm>
#include <stdexcept>

#include "models/cpu/loops.h"
#include "models/cpu/lowering.h"

namespace nearmetal::cpu {

using dnnl::algorithm;

namespace {

// oneDNN's ReLU of slope 0 takes a maximum, which makes 0 of NaN. That of another slope multiplies
// what is not above 0, and keeps it; no value is so large that this slope's part of it shows.
constexpr float slope_that_keeps_nan = 1e-30F;

}  // namespace

Tensor* Lowering::value(int node) {
  if (tensors_.values[node] == nullptr) {
    if (!graph_.is(node, OpKind::input)) throw std::logic_error("a node reads a later one");
    tensors_.values[node] = tensor({dims(node), type_, dnnl::memory::format_tag::nchw});
  }
  return tensors_.values[node];
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
    if (tensors_.values[other] == nullptr || is_read || stays) return epilogue;
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
  Tensor* residual = epilogue.residual >= 0 ? tensors_.values[epilogue.residual] : nullptr;
  const auto desc = describe<dnnl::convolution_forward>(
      {engine_, attributes_for(epilogue)}, direction(), algorithm::convolution_direct,
      any(dims(input)), any(weight_dims), bias_desc(node),
      residual != nullptr ? residual->desc() : any(dims(i)), strides, padding, padding);
  convolutions_.emplace(i, desc);
  if (graph_.is(input, OpKind::input) && tensors_.values[input] == nullptr) {
    tensors_.values[input] = tensor(desc.src_desc());
  }
  define_parameter(node.parameters[0], desc.weights_desc());
  Tensor* x = reordered(node.name, Phase::forward, value(input), desc.src_desc());
  Tensor* y = tensors_.values[epilogue.output] =
      residual != nullptr ? residual : tensor(desc.dst_desc());
  Arguments arguments{
      {DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, operand(node.parameters[0])}, {DNNL_ARG_DST, y}};
  if (node.has_bias()) {
    arguments.emplace_back(DNNL_ARG_BIAS, vector_operand(node.parameters[1]));
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

  int64_t& end = step_.bytes(Region::statistics);
  const int64_t padded = (node.shape.channels + 15) / 16 * 16;
  if (micro_batch_ == 0) {
    step_.norms.push_back({end / 4, padded, node.shape.channels,
                           options_.batch_size * node.shape.height * node.shape.width});
  }
  Tensor* mean = tensor(vector(node.shape.channels), Region::statistics, end);
  Tensor* variance = tensor(vector(node.shape.channels), Region::statistics, end + 4 * padded);
  end += 2 * 4 * padded;
  tensors_.batch_statistics[i] = {mean, variance};

  const NormExtent extent = norm_extent(x->desc());
  Tensor* y = tensors_.values[i] = tensor(x->desc());
  if (with_relu) tensors_.values[relu] = y;
  Tensor* scale = vector_operand(node.parameters[0]);
  Tensor* bias = vector_operand(node.parameters[1]);
  Tensor* scratch = norm_scratch(extent);
  emit(with_relu ? node.name + " + " + graph_.node(relu).name : node.name, Phase::forward,
       "own loop", {x, scale, bias, y, mean, variance, scratch},
       [=, precision = options_.precision] {
         norm_forward(precision, extent,
                      {x->data(), scale->floats(), bias->floats(), with_relu, y->data(),
                       mean->floats(), variance->floats(), static_cast<double*>(scratch->data())});
       });
}

void Lowering::forward_add(int i) {
  if (tensors_.values[i] != nullptr) return;  // with the convolution before it
  if (!graph_.is(graph_.sole_consumer(i), OpKind::relu)) emit_add(i, i, false);
}

void Lowering::emit_add(int i, int output, bool relu) {
  const Node& node = graph_.node(i);
  Tensor* left = value(node.inputs[0]);
  Tensor* right = reordered(node.name, Phase::forward, value(node.inputs[1]), left->desc());
  // In place where nothing else reads the left summand: batch norm's backward pass needs its input
  // and, without a ReLU of its own, not its output.
  const int source = node.inputs[0];
  const bool in_place =
      graph_.is(source, OpKind::batch_norm) && graph_.consumers(source).size() == 1;
  Tensor* out = in_place ? left : tensor(left->desc());
  tensors_.values[output] = out;
  emit_sum(relu ? node.name + " + " + graph_.node(output).name : node.name, Phase::forward, left,
           right, relu, out);
}

void Lowering::emit_sum(const std::string& name, Phase phase, Tensor* left, Tensor* right,
                        bool relu, Tensor* out) {
  const int64_t elements = out->bytes() / element_bytes(options_.precision);
  emit(name, phase, "own loop", {left, right, out}, [=, precision = options_.precision] {
    add(precision, left->data(), right->data(), relu, out->data(), elements);
  });
}

void Lowering::forward_relu(int i) {
  const int input = graph_.node(i).inputs[0];
  if (tensors_.values[i] != nullptr) return;  // with the batch norm before it
  if (graph_.is(input, OpKind::add) && graph_.sole_consumer(input) == i)
    return emit_add(input, i, true);
  Tensor* x = value(input);
  Tensor* y = tensors_.values[i] = tensor(x->desc());
  const int64_t elements = x->bytes() / element_bytes(options_.precision);
  emit_loop(i, Phase::forward, {x, y}, [=, precision = options_.precision] {
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
  tensors_.values[i] = tensor(desc.dst_desc());
  Arguments arguments{{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, tensors_.values[i]}};
  if (desc.workspace_desc().get_size() > 0) {
    tensors_.workspaces[i] = tensor(desc.workspace_desc());
    arguments.emplace_back(DNNL_ARG_WORKSPACE, tensors_.workspaces[i]);
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
    tensors_.gradients[input].push_back(gradient);
  }
  emit_loop(i, Phase::forward, {logits, gradient},
            [=, precision = options_.precision, first = micro_batch_ * batch, &state = state_] {
              const int64_t image = state.first_image + first;
              softmax_loss(precision, logits->floats(), state.labels.data() + image, batch, classes,
                           state.loss_scale / static_cast<float>(batch),
                           state.losses.data() + image,
                           gradient != nullptr ? gradient->data() : nullptr);
            });
}

void Lowering::update_statistics() {
  if (step_.norms.empty()) return;
  // Where those of the micro-batch begin.
  Tensor* first = tensors_.batch_statistics.begin()->second.first;
  emit("running statistics", Phase::forward, "own loop", {},
       [first, norms = step_.norms, &state = state_] {
         update_running_statistics(norms, first->floats(), state.running_statistics.data());
       })
      .bytes = 3.0 * 4 * static_cast<double>(step_.statistics_elements());
}

void Lowering::add_gradient(int node, Tensor* gradient) {
  tensors_.gradients[node].push_back(
      reordered(graph_.node(node).name, Phase::backward, gradient, value(node)->desc()));
}

Tensor* Lowering::gradient_of(int node) {
  std::vector<Tensor*>& parts = tensors_.gradients[node];
  while (parts.size() > 1) {
    Tensor* left = parts[parts.size() - 2];
    Tensor* right = parts.back();
    Tensor* sum = tensor(left->desc());
    emit_sum(graph_.node(node).name + " gradients", Phase::backward, left, right, false, sum);
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
  const auto [mean, variance] = tensors_.batch_statistics.at(i);
  const NormExtent extent = norm_extent(x->desc());
  Tensor* scratch = norm_scratch(extent);
  Tensor* scale = operand(node.parameters[0]);
  Tensor* scale_gradient = step_.slices[node.parameters[0]].gradient;
  Tensor* bias_gradient = step_.slices[node.parameters[1]].gradient;
  emit_loop(i, Phase::backward,
            {x, y, dy, scale, mean, variance, dx, scale_gradient, bias_gradient, scratch},
            [=, mean = mean, variance = variance, precision = options_.precision] {
              norm_backward(
                  precision, extent,
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
  std::vector<Tensor*>& parts = tensors_.gradients[i];
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
  emit_loop(i, Phase::backward, {y, dy, other, dx}, [=, precision = options_.precision] {
    relu_backward(precision, y->data(), dy->data(), other != nullptr ? other->data() : nullptr,
                  dx->data(), elements);
  });
  // A sum before the ReLU has no value of its own.
  const bool fused = graph_.is(input, OpKind::add) && tensors_.values[input] == nullptr;
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
  if (tensors_.workspaces[i] != nullptr)
    arguments.emplace_back(DNNL_ARG_WORKSPACE, tensors_.workspaces[i]);
  emit<dnnl::pooling_backward>(node.name, Phase::backward,
                               key(std::string(to_string(node.op)) + " backward", i), desc,
                               arguments);
  add_gradient(node.inputs[0], dx);
}

}  // namespace nearmetal::cpu
