#include "models/cpu/lowering_images.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/cpu/loops.h"

namespace nearmetal::cpu {
namespace {

using dnnl::algorithm;

// oneDNN's ReLU of slope 0 takes a maximum, which makes 0 of NaN. That of another slope multiplies
// what is not above 0, and keeps it; no value is so large that this slope's part of it shows.
constexpr float slope_that_keeps_nan = 1e-30F;

// The operations that a convolution computes along with itself where no backward pass needs what
// lies between: the sum with a residual, in place, a ReLU, or both.
struct Epilogue {
  int output = -1;    // the node whose value it leaves
  int residual = -1;  // the node that is added; -1: none
  bool relu = false;
};

bool fuses_relu(const Lowering& to, int norm) {
  return to.graph.is(to.graph.sole_consumer(norm), OpKind::relu);
}

dnnl::algorithm pooling_algorithm(const Node& node) {
  return node.op == OpKind::max_pool ? algorithm::pooling_max
                                     : algorithm::pooling_avg_exclude_padding;
}

Epilogue epilogue_of(const Lowering& to, int conv) {
  Epilogue epilogue{conv};
  if (to.graph.is_trainable()) return epilogue;
  int consumer = to.graph.sole_consumer(conv);
  if (to.graph.is(consumer, OpKind::add)) {
    const std::vector<int>& added = to.graph.node(consumer).inputs;
    const int other = added[0] == conv ? added[1] : added[0];
    const bool is_read = std::ranges::any_of(to.graph.consumers(other), [&](int reader) {
      return reader >= conv && reader != consumer;
    });
    const bool stays = to.graph.is(other, OpKind::input);  // from step to step
    if (to.tensors.values[other] == nullptr || is_read || stays) return epilogue;
    epilogue = {consumer, other};
    consumer = to.graph.sole_consumer(consumer);
  }
  if (to.graph.is(consumer, OpKind::relu)) {
    epilogue.output = consumer;
    epilogue.relu = true;
  }
  return epilogue;
}

dnnl::primitive_attr attributes_for(const Epilogue& epilogue) {
  dnnl::post_ops operations;
  if (epilogue.residual >= 0) operations.append_sum();
  if (epilogue.relu) append_relu(operations, slope_that_keeps_nan);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_post_ops(operations);
  return attributes;
}

void emit_add(Lowering& to, int i, int output, bool relu) {
  const Node& node = to.graph.node(i);
  const int source = node.inputs[0];
  Tensor* left = to.value(source);
  Tensor* right = to.reordered(node.name, Phase::forward, to.value(node.inputs[1]), left->desc());
  // In place where nothing else reads the left summand: batch norm's backward pass needs its input
  // and, without a ReLU of its own, not its output.
  const bool in_place =
      to.graph.is(source, OpKind::batch_norm) && to.graph.consumers(source).size() == 1;
  Tensor* out = to.tensors.values[output] = in_place ? left : to.tensor(left->desc());
  to.emit_sum(relu ? node.name + " + " + to.graph.node(output).name : node.name, Phase::forward,
              left, right, relu, out);
}

PoolWindow pool_window(const Lowering& to, const Node& node) {
  const Shape& in = to.graph.input_shape(node);
  if (node.op == OpKind::global_average_pool) return {{1, 1}, {in.height, in.width}, {0, 0}};
  const Window& window = node.window;
  return {{window.stride, window.stride},
          {window.kernel, window.kernel},
          {window.padding, window.padding}};
}

}  // namespace

void forward_convolution(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  const int input = node.inputs[0];
  const Dims strides{node.window.stride, node.window.stride};
  const Dims padding{node.window.padding, node.window.padding};
  const Dims weight_dims = to.graph.parameters()[node.parameters[0]].dims;
  const Epilogue epilogue = epilogue_of(to, i);
  Tensor* residual = epilogue.residual >= 0 ? to.tensors.values[epilogue.residual] : nullptr;
  const auto desc = describe<dnnl::convolution_forward>(
      {to.engine, attributes_for(epilogue)}, to.direction(), algorithm::convolution_direct,
      to.any(to.dims(input)), to.any(weight_dims), to.bias_desc(node),
      residual != nullptr ? residual->desc() : to.any(to.dims(i)), strides, padding, padding);
  to.convolutions.emplace(i, desc);
  if (to.graph.is(input, OpKind::input) && to.tensors.values[input] == nullptr) {
    to.tensors.values[input] = to.tensor(desc.src_desc());
  }
  to.define_parameter(node.parameters[0], desc.weights_desc());
  Tensor* x = to.reordered(node.name, Phase::forward, to.value(input), desc.src_desc());
  Tensor* y = to.tensors.values[epilogue.output] =
      residual != nullptr ? residual : to.tensor(desc.dst_desc());
  Arguments arguments{
      {DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, to.operand(node.parameters[0])}, {DNNL_ARG_DST, y}};
  if (node.has_bias()) {
    arguments.emplace_back(DNNL_ARG_BIAS, to.vector_operand(node.parameters[1]));
  }
  std::string name = node.name, what = std::string("conv") + to.pass();
  if (residual != nullptr) what += "+sum";
  if (epilogue.relu) what += "+relu";
  if (epilogue.output != i) name += " + " + to.graph.node(epilogue.output).name;
  to.emit<dnnl::convolution_forward>(i, Phase::forward, what, desc, arguments).name = name;
}

void forward_norm(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  Tensor* x = to.value(node.inputs[0]);
  const int relu = to.graph.sole_consumer(i);
  const bool with_relu = fuses_relu(to, i);

  int64_t& end = to.step.bytes(Region::statistics);
  const int64_t padded = (node.shape.channels + 15) / 16 * 16;
  if (to.micro_batch == 0) {
    to.step.norms.push_back({end / 4, padded, node.shape.channels,
                             to.options.batch_size * node.shape.height * node.shape.width});
  }
  Tensor* mean = to.tensor(fp32_vector(node.shape.channels), Region::statistics, end);
  Tensor* variance =
      to.tensor(fp32_vector(node.shape.channels), Region::statistics, end + 4 * padded);
  end += 2 * 4 * padded;
  to.tensors.batch_statistics[i] = {mean, variance};

  const NormExtent extent = norm_extent(x->desc());
  Tensor* y = to.tensors.values[i] = to.tensor(x->desc());
  if (with_relu) to.tensors.values[relu] = y;
  Tensor* scale = to.vector_operand(node.parameters[0]);
  Tensor* bias = to.vector_operand(node.parameters[1]);
  Tensor* scratch = to.tensor(fp32_vector(norm_scratch_bytes(extent) / 4));
  to.emit(with_relu ? node.name + " + " + to.graph.node(relu).name : node.name, Phase::forward,
          "own loop", {x, scale, bias, y, mean, variance, scratch},
          [=, precision = to.options.precision] {
            norm_forward(
                precision, extent,
                {x->data(), scale->floats(), bias->floats(), with_relu, y->data(), mean->floats(),
                 variance->floats(), static_cast<double*>(scratch->data())});
          });
}

void forward_add(Lowering& to, int i) {
  if (to.tensors.values[i] != nullptr) return;  // with the convolution before it
  if (!to.graph.is(to.graph.sole_consumer(i), OpKind::relu)) emit_add(to, i, i, false);
}

void forward_relu(Lowering& to, int i) {
  const int input = to.graph.node(i).inputs[0];
  if (to.tensors.values[i] != nullptr) return;  // with the batch norm before it
  if (to.graph.is(input, OpKind::add) && to.graph.sole_consumer(input) == i)
    return emit_add(to, input, i, true);
  Tensor* x = to.value(input);
  Tensor* y = to.tensors.values[i] = to.tensor(x->desc());
  const int64_t elements = x->bytes() / element_bytes(to.options.precision);
  to.emit_loop(i, Phase::forward, {x, y}, [=, precision = to.options.precision] {
    cpu::relu(precision, x->data(), y->data(), elements);
  });
}

void forward_pool(Lowering& to, int i) {
  const Node& node = to.graph.node(i);
  Tensor* x = to.value(node.inputs[0]);
  const auto desc = describe_pooling(to.place, to.direction(), pooling_algorithm(node), x->desc(),
                                     to.any(to.dims(i)), pool_window(to, node));
  to.pools.emplace(i, desc);
  to.tensors.values[i] = to.tensor(desc.dst_desc());
  Arguments arguments{{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, to.tensors.values[i]}};
  if (desc.workspace_desc().get_size() > 0) {
    to.tensors.workspaces[i] = to.tensor(desc.workspace_desc());
    arguments.emplace_back(DNNL_ARG_WORKSPACE, to.tensors.workspaces[i]);
  }
  to.emit<dnnl::pooling_forward>(i, Phase::forward, to_string(node.op) + std::string(to.pass()),
                                 desc, arguments);
}

void forward_loss(Lowering& to, int i) {
  const int input = to.graph.node(i).inputs[0];
  if (!to.graph.is(input, OpKind::linear)) {
    throw std::invalid_argument("the CPU backend takes the loss of a linear layer alone");
  }
  const int64_t batch = to.options.batch_size, classes = to.graph.classes();
  Tensor* logits = to.value(input);
  Tensor* gradient =
      to.loss_gradient(input, {{batch, classes}, to.type, dnnl::memory::format_tag::nc});
  to.emit_loop(
      i, Phase::forward, {logits, gradient},
      [=, precision = to.options.precision, first = to.micro_batch * batch, &state = to.state] {
        const int64_t image = state.first_image + first;
        softmax_loss(precision, logits->floats(), state.labels.data() + image, batch, classes,
                     state.loss_scale / static_cast<float>(batch), state.losses.data() + image,
                     gradient != nullptr ? gradient->data() : nullptr);
      });
}

void update_statistics(Lowering& to) {
  if (to.step.norms.empty()) return;
  // Where those of the micro-batch begin.
  Tensor* first = to.tensors.batch_statistics.begin()->second.first;
  to.emit("running statistics", Phase::forward, "own loop", {},
          [first, norms = to.step.norms, &state = to.state] {
            update_running_statistics(norms, first->floats(), state.running_statistics.data());
          })
      .bytes = 3.0 * 4 * static_cast<double>(to.step.statistics_elements());
}

void backward_convolution(Lowering& to, int i, Tensor* dy) {
  const Node& node = to.graph.node(i);
  const int input = node.inputs[0], weight = node.parameters[0];
  const Dims strides{node.window.stride, node.window.stride};
  const Dims padding{node.window.padding, node.window.padding};
  const Dims weight_dims = to.graph.parameters()[weight].dims;
  const auto& hint = to.convolutions.at(i);

  const auto weights = describe_backward<dnnl::convolution_backward_weights>(
      to.place, hint, algorithm::convolution_direct, to.any(to.dims(input)), any_fp32(weight_dims),
      to.bias_desc(node), to.any(to.dims(i)), strides, padding, padding);
  Tensor* x = to.reordered(node.name, Phase::backward, to.value(input), weights.src_desc());
  Tensor* dy_for_weights = to.reordered(node.name, Phase::backward, dy, weights.diff_dst_desc());
  Tensor* dw = to.gradient_target(weight, weights.diff_weights_desc());
  Arguments arguments{
      {DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy_for_weights}, {DNNL_ARG_DIFF_WEIGHTS, dw}};
  if (node.has_bias()) {
    arguments.emplace_back(DNNL_ARG_DIFF_BIAS, to.gradient(node.parameters[1]));
  }
  to.emit<dnnl::convolution_backward_weights>(i, Phase::backward, "conv backward_weights", weights,
                                              arguments);
  to.store_gradient(node.name, weight, dw);
  if (to.graph.is(input, OpKind::input)) return;

  const auto data = describe_backward<dnnl::convolution_backward_data>(
      to.place, hint, algorithm::convolution_direct, to.any(to.dims(input)), to.any(weight_dims),
      to.any(to.dims(i)), strides, padding, padding);
  Tensor* w = to.reordered(node.name, Phase::backward, to.operand(weight), data.weights_desc());
  Tensor* dy_for_data = to.reordered(node.name, Phase::backward, dy, data.diff_dst_desc());
  Tensor* dx = to.tensor(data.diff_src_desc());
  to.emit<dnnl::convolution_backward_data>(
      i, Phase::backward, "conv backward_data", data,
      {{DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DIFF_DST, dy_for_data}, {DNNL_ARG_DIFF_SRC, dx}});
  to.add_gradient(input, dx);
}

void backward_norm(Lowering& to, int i, Tensor* dy) {
  const Node& node = to.graph.node(i);
  Tensor* x = to.value(node.inputs[0]);
  Tensor* y = fuses_relu(to, i) ? to.value(i) : nullptr;
  Tensor* dx = to.tensor(x->desc());
  const auto [mean, variance] = to.tensors.batch_statistics.at(i);
  const NormExtent extent = norm_extent(x->desc());
  Tensor* scratch = to.tensor(fp32_vector(norm_scratch_bytes(extent) / 4));
  Tensor* scale = to.operand(node.parameters[0]);
  Tensor* scale_gradient = to.gradient(node.parameters[0]);
  Tensor* bias_gradient = to.gradient(node.parameters[1]);
  to.emit_loop(i, Phase::backward,
               {x, y, dy, scale, mean, variance, dx, scale_gradient, bias_gradient, scratch},
               [=, mean = mean, variance = variance, precision = to.options.precision] {
                 norm_backward(
                     precision, extent,
                     {x->data(), y != nullptr ? y->data() : nullptr, dy->data(), scale->floats(),
                      mean->floats(), variance->floats(), dx->data(), scale_gradient->floats(),
                      bias_gradient->floats(), static_cast<double*>(scratch->data())});
               });
  to.add_gradient(node.inputs[0], dx);
}

void backward_add(Lowering& to, int i, Tensor* dy) {
  for (const int input : to.graph.node(i).inputs) to.add_gradient(input, dy);
}

void backward_relu(Lowering& to, int i) {
  const int input = to.graph.node(i).inputs[0];
  if (to.graph.is(input, OpKind::batch_norm) && fuses_relu(to, input)) {
    if (Tensor* gradient = to.gradient_of(i)) to.add_gradient(input, gradient);
    return;
  }
  std::vector<Tensor*>& parts = to.tensors.gradients[i];
  Tensor* other = nullptr;
  if (parts.size() == 2) {  // the sum and the ReLU in one loop
    other = parts.back();
    parts.pop_back();
  }
  Tensor* dy = to.gradient_of(i);
  if (dy == nullptr) return;
  Tensor* y = to.value(i);
  Tensor* dx = to.tensor(y->desc());
  const int64_t elements = y->bytes() / element_bytes(to.options.precision);
  to.emit_loop(i, Phase::backward, {y, dy, other, dx}, [=, precision = to.options.precision] {
    relu_backward(precision, y->data(), dy->data(), other != nullptr ? other->data() : nullptr,
                  dx->data(), elements);
  });
  // A sum before the ReLU has no value of its own.
  const bool fused = to.graph.is(input, OpKind::add) && to.tensors.values[input] == nullptr;
  for (const int target : fused ? to.graph.node(input).inputs : std::vector<int>{input}) {
    to.add_gradient(target, dx);
  }
}

void backward_pool(Lowering& to, int i, Tensor* dy) {
  const Node& node = to.graph.node(i);
  const auto desc = describe_pooling_backward(to.place, to.pools.at(i), pooling_algorithm(node),
                                              to.value(node.inputs[0])->desc(), dy->desc(),
                                              pool_window(to, node));
  Tensor* dx = to.tensor(desc.diff_src_desc());
  Arguments arguments{{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, dx}};
  if (to.tensors.workspaces[i] != nullptr)
    arguments.emplace_back(DNNL_ARG_WORKSPACE, to.tensors.workspaces[i]);
  to.emit<dnnl::pooling_backward>(i, Phase::backward, std::string(to_string(node.op)) + " backward",
                                  desc, arguments);
  to.add_gradient(node.inputs[0], dx);
}

}  // namespace nearmetal::cpu
