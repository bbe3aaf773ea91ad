#include "tests/ops/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "tests/ops/reference_layers.h"
#include "tests/ops/reference_tokens.h"

namespace nearmetal {

namespace {

class Walk {
 public:
  Walk(const Graph& graph, const ReferenceInputs& inputs)
      : graph_(graph),
        inputs_(inputs),
        values_(graph.nodes().size()),
        gradients_(graph.nodes().size()) {
    for (const Parameter& parameter : graph.parameters()) {
      const auto first = inputs.parameters.begin() + parameter.offset;
      std::vector<double> values(first, first + parameter.size);
      if (parameter.is_matrix()) round_operand(values);
      parameters_.push_back(std::move(values));
    }
    step_.gradients.resize(graph.parameter_count());
  }

  std::vector<double> logits(std::span<const float> running_statistics) {
    running_statistics_ = running_statistics;
    int i = -1;
    do forward(++i);
    while (!graph_.are_logits(i));
    const BatchTensor& last = values_[i];
    std::vector<double> logits;  // [batch, tokens, channels] of [channels, tokens, batch]
    for (int64_t sample = 0; sample < last.batch; ++sample) {
      for (int64_t at = sample; at < last.plane_size(); at += last.batch) {
        for (int64_t c = 0; c < last.shape.channels; ++c) logits.push_back(last.plane(c)[at]);
      }
    }
    return logits;
  }

  ReferenceStep run() {
    const int count = static_cast<int>(graph_.nodes().size());
    for (int i = 0; i < count; ++i) forward(i);
    for (int i = count - 1; i >= 0; --i) backward(i);
    update();
    return std::move(step_);
  }

 private:
  void round_operand(std::vector<double>& values) const {
    if (!inputs_.rounding) return;
    for (double& value : values) value = rounded(value, *inputs_.rounding);
  }
  void round_stored(std::vector<double>& values) const {
    if (!inputs_.rounding) return;
    const bool tf32 = *inputs_.rounding == Precision::tf32;
    const Precision stored = tf32 ? Precision::fp32 : *inputs_.rounding;
    for (double& value : values) value = rounded(value, stored);
  }
  BatchTensor operand(BatchTensor tensor) const {
    round_operand(tensor.values);
    return tensor;
  }
  const BatchTensor& input(const Node& node, int which = 0) const {
    return values_[node.inputs[which]];
  }
  Values parameter(const Node& node, int which) const {
    return parameters_[node.parameters[which]];
  }

  void forward(int i) {
    values_[i] = value_of(graph_.node(i));
    if (!graph_.are_logits(i) && !graph_.is(i, OpKind::token_ids)) round_stored(values_[i].values);
  }

  BatchTensor value_of(const Node& node) {
    switch (node.op) {
      case OpKind::input: {
        BatchTensor images(inputs_.batch_size, node.shape);
        for (size_t i = 0; i < images.values.size(); ++i) {
          const auto image = i / node.shape.elements(), place = i % node.shape.elements();
          images.values[place * inputs_.batch_size + image] = inputs_.images[i];
        }
        return images;
      }
      case OpKind::token_ids:
        return token_ids(inputs_.tokens, inputs_.batch_size);
      case OpKind::embedding:
        return embedding(input(node), node.shape, parameter(node, 0), parameter(node, 1),
                         parameter(node, 2));
      case OpKind::conv:
      case OpKind::token_linear:  // by 1x1 windows
        return with_bias(
            node, convolution(operand(input(node)), parameter(node, 0), node.shape, node.window));
      case OpKind::batch_norm:
        if (!running_statistics_.empty()) return evaluated_norm(node);
        append_running_statistics(input(node));
        return batch_norm(input(node), parameter(node, 0), parameter(node, 1));
      case OpKind::layer_norm:
        return layer_norm(input(node), parameter(node, 0), parameter(node, 1), node.epsilon);
      case OpKind::relu:
        return relu(input(node));
      case OpKind::gelu:
        return gelu(input(node));
      case OpKind::attention:
        return attention(operand(input(node)), node.heads);
      case OpKind::class_token:
        return prepend_token(input(node), parameter(node, 0));
      case OpKind::positions:
        return add_positions(input(node), parameter(node, 0));
      case OpKind::select_token:
        return first_token(input(node));
      case OpKind::add:
        return sum(input(node, 0), input(node, 1));
      case OpKind::max_pool:
        return max_pool(input(node), node.shape, node.window);
      case OpKind::global_average_pool:
        return global_average_pool(input(node));
      case OpKind::linear:
        return with_bias(node, convolution(flat(operand(input(node))), parameter(node, 0),
                                           node.shape, node.window));
      case OpKind::softmax_cross_entropy:
        step_.loss = softmax_cross_entropy(input(node), inputs_.labels);
        return {};
      case OpKind::span_loss:
        step_.loss = span_loss(input(node), inputs_.labels);
        return {};
      case OpKind::boundary:
        break;  // the reference takes whole networks alone
    }
    throw std::logic_error("unknown OpKind");
  }

  // A linear layer is a convolution by 1x1 windows of an image of one pixel, whose channels are all
  // values of a sample.
  static BatchTensor flat(BatchTensor x) {
    x.shape = {x.shape.elements()};
    return x;
  }

  BatchTensor with_bias(const Node& node, BatchTensor y) const {
    if (!node.has_bias()) return y;
    for (size_t i = 0; i < y.values.size(); ++i) {
      y.values[i] += parameter(node, 1)[i / y.plane_size()];
    }
    return y;
  }

  BatchTensor evaluated_norm(const Node& node) {
    const int64_t channels = node.shape.channels;
    BatchTensor y = input(node);
    for (size_t i = 0; i < y.values.size(); ++i) {
      const size_t channel = i / y.plane_size();
      const double mean = running_statistics_[channel];
      const double variance = running_statistics_[channels + channel];
      y.values[i] = (y.values[i] - mean) / std::sqrt(variance + batch_norm_epsilon) *
                        parameter(node, 0)[channel] +
                    parameter(node, 1)[channel];
    }
    running_statistics_ = running_statistics_.subspan(2 * channels);
    return y;
  }

  // As torchvision: the running variance takes the unbiased variance.
  void append_running_statistics(const BatchTensor& x) {
    std::vector<double> variances;
    for (int64_t channel = 0; channel < x.shape.channels; ++channel) {
      const Moments moments = channel_moments(x, channel);
      const double unbiased = moments.variance * moments.count / (moments.count - 1);
      step_.running_statistics.push_back(batch_norm_momentum * moments.mean);
      variances.push_back((1 - batch_norm_momentum) + batch_norm_momentum * unbiased);
    }
    step_.running_statistics.insert(step_.running_statistics.end(), variances.begin(),
                                    variances.end());
  }

  void backward(int i) {
    const Node& node = graph_.node(i);
    const BatchTensor& dy = gradients_[i];
    switch (node.op) {
      case OpKind::input:
      case OpKind::token_ids:
      case OpKind::boundary:
        return;
      case OpKind::embedding:
        for (int table = 0; table < 3; ++table) {
          set_gradient(node.parameters[table],
                       embedding_gradient(table, input(node), dy, parameter(node, table).size()));
        }
        return;
      case OpKind::conv:
      case OpKind::linear:
      case OpKind::token_linear:
        return backward_product(node, dy);
      case OpKind::batch_norm: {
        BatchNormGradients gradients = batch_norm_gradients(input(node), parameter(node, 0), dy);
        set_gradient(node.parameters[0], std::move(gradients.scale));
        set_gradient(node.parameters[1], std::move(gradients.bias));
        return add_gradient(node.inputs[0], std::move(gradients.input));
      }
      case OpKind::relu:
        return add_gradient(node.inputs[0], relu_gradient(input(node), dy));
      case OpKind::layer_norm:
      case OpKind::gelu:
      case OpKind::attention:
      case OpKind::class_token:
      case OpKind::positions:
      case OpKind::select_token:
        return add_gradient(node.inputs[0], backward_tokens(node, dy));
      case OpKind::add:
        add_gradient(node.inputs[0], dy);
        return add_gradient(node.inputs[1], dy);
      case OpKind::max_pool:
        return add_gradient(node.inputs[0], max_pool_gradient(input(node), dy, node.window));
      case OpKind::global_average_pool:
        return add_gradient(node.inputs[0], global_average_pool_gradient(dy, input(node).shape));
      case OpKind::softmax_cross_entropy:
      case OpKind::span_loss: {
        const auto of_loss =
            node.op == OpKind::span_loss ? span_loss_gradient : softmax_cross_entropy_gradient;
        BatchTensor gradient = of_loss(input(node), inputs_.labels);
        for (double& value : gradient.values) value *= inputs_.loss_scale;
        return add_gradient(node.inputs[0], std::move(gradient));
      }
    }
  }

  void backward_product(const Node& node, const BatchTensor& stored_dy) {
    const BatchTensor dy = operand(stored_dy);
    const BatchTensor x = node.op == OpKind::linear ? flat(input(node)) : input(node);
    set_gradient(node.parameters[0], convolution_weight_gradient(operand(x), dy, node.window));
    if (node.has_bias()) {
      std::vector<double> bias(node.shape.channels);
      for (size_t i = 0; i < stored_dy.values.size(); ++i) {
        bias[i / stored_dy.plane_size()] += stored_dy.values[i];
      }
      set_gradient(node.parameters[1], std::move(bias));
    }
    if (graph_.node(node.inputs[0]).op == OpKind::input) return;
    BatchTensor dx = convolution_input_gradient(dy, parameter(node, 0), x.shape, node.window);
    dx.shape = input(node).shape;
    add_gradient(node.inputs[0], std::move(dx));
  }

  // The gradient of the input; sets those of the parameters.
  BatchTensor backward_tokens(const Node& node, const BatchTensor& dy) {
    const BatchTensor& x = input(node);
    switch (node.op) {
      case OpKind::layer_norm: {
        auto gradients = layer_norm_gradients(x, parameter(node, 0), node.epsilon, dy);
        set_gradient(node.parameters[0], std::move(gradients.scale));
        set_gradient(node.parameters[1], std::move(gradients.bias));
        return std::move(gradients.input);
      }
      case OpKind::gelu:
        return gelu_gradient(x, dy);
      case OpKind::attention:
        return attention_gradient(operand(x), node.heads, operand(dy));
      case OpKind::class_token: {
        PrependedGradients gradients = prepend_token_gradients(dy, x.shape);
        set_gradient(node.parameters[0], std::move(gradients.token));
        return std::move(gradients.input);
      }
      case OpKind::positions:
        set_gradient(node.parameters[0], positions_gradient(dy));
        return dy;
      case OpKind::select_token:
        return first_token_gradient(dy, x.shape);
      default:
        throw std::logic_error("no operation on tokens");
    }
  }

  void set_gradient(int index, std::vector<double> gradient) {
    const Parameter& parameter = graph_.parameters()[index];
    if (parameter.is_matrix()) round_stored(gradient);
    for (double& value : gradient) value /= inputs_.loss_scale;
    std::copy(gradient.begin(), gradient.end(), step_.gradients.begin() + parameter.offset);
  }

  // The gradient of a node is the sum of what its consumers leave.
  void add_gradient(int node, BatchTensor gradient) {
    round_stored(gradient.values);
    BatchTensor& total = gradients_[node];
    total = total.values.empty() ? std::move(gradient) : sum(total, gradient);
  }

  void update() {
    step_.parameters.assign(inputs_.parameters.begin(), inputs_.parameters.end());
    update_parameters(graph_, inputs_.optimizer, 1, step_);
    const auto& all = step_.gradients;
    step_.gradient_norm = std::sqrt(std::inner_product(all.begin(), all.end(), all.begin(), 0.0));
  }

  const Graph& graph_;
  const ReferenceInputs& inputs_;
  std::vector<std::vector<double>> parameters_;  // as the products read them
  std::vector<BatchTensor> values_;              // by node
  std::vector<BatchTensor> gradients_;           // of the loss with respect to values_
  std::span<const float> running_statistics_;    // of the norms that are still to come
  ReferenceStep step_;
};

}  // namespace

ReferenceStep reference_step(const Graph& graph, const ReferenceInputs& inputs) {
  return Walk(graph, inputs).run();
}

std::vector<double> reference_logits(const Graph& graph, const ReferenceInputs& inputs,
                                     std::span<const float> running_statistics) {
  return Walk(graph, inputs).logits(running_statistics);
}

}  // namespace nearmetal
