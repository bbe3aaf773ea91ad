#include "models/cuda/compiler/patterns.h"

#include <algorithm>

namespace nearmetal::cuda {

Extent NodeShapes::extent(int node) const {
  const Shape& shape = graph.node(node).shape;
  return {batch * shape.height * shape.width, static_cast<int>(shape.channels)};
}

ImageSize NodeShapes::image(int node) const {
  const Shape& shape = graph.node(node).shape;
  return {static_cast<int>(shape.height), static_cast<int>(shape.width)};
}

PoolShape NodeShapes::pool(int pool) const {
  const Node& node = graph.node(pool);
  const Shape& input = graph.input_shape(node);
  return {batch,
          static_cast<int>(input.channels),
          static_cast<int>(input.height),
          static_cast<int>(input.width),
          static_cast<int>(node.shape.height),
          static_cast<int>(node.shape.width),
          node.window};
}

StemShape NodeShapes::stem(int conv) const {
  const Node& node = graph.node(conv);
  const Shape& input = graph.input_shape(node);
  return {batch, static_cast<int>(input.height), static_cast<int>(input.width),
          static_cast<int>(node.shape.height), static_cast<int>(node.shape.width)};
}

PointwiseShape NodeShapes::pointwise(int conv) const {
  const MomentsShape shape = moments(conv);
  return {shape.rows, shape.outputs, shape.inputs};
}

MomentsShape NodeShapes::moments(int conv) const {
  const Extent output = extent(conv);
  return {output.rows, static_cast<int>(graph.input_shape(graph.node(conv)).channels),
          output.channels};
}

LogitsShape NodeShapes::logits(int linear) const {
  const Shape& logits = graph.node(linear).shape;
  return {batch * logits.tokens(), static_cast<int>(logits.channels),
          static_cast<int>((logits.channels + 7) / 8 * 8)};
}

LinearShape NodeShapes::linear(int linear) const {
  const Node& node = graph.node(linear);
  const Shape& input = graph.input_shape(node);
  const int64_t outputs = node.shape.channels;
  return {extent(linear).rows, node.op == OpKind::token_linear ? input.channels : input.elements(),
          outputs, graph.are_logits(linear) ? logits(linear).row_elements : outputs};
}

TokenExtent NodeShapes::tokens(int node) const {
  const Shape& shape = graph.node(node).shape;
  return {batch, shape.tokens(), shape.channels};
}

AttentionExtent NodeShapes::attention(int attention) const {
  const Node& node = graph.node(attention);
  return {batch, node.shape.tokens(), node.heads, node.shape.channels / node.heads};
}

Patterns::Patterns(const Graph& graph, Kernels kernels, Precision precision)
    : graph_(graph),
      ours_(kernels != Kernels::cudnn),
      fuses_norms_(ours_ || precision == Precision::fp16),
      inside_(graph.nodes().size()) {
  const int count = static_cast<int>(graph.nodes().size());
  for (int i = 0; i < count; ++i) see(i);
}

void Patterns::see(int node) {
  switch (graph_.node(node).op) {
    case OpKind::conv:
    case OpKind::token_linear:
    case OpKind::linear: {
      // Our batch norms take the bias before them into account; cuDNN's do not.
      const bool taken = ours_ && graph_.norm_behind(node) >= 0;
      if (graph_.node(node).has_bias() && !taken && !graph_.are_logits(node)) {
        activations_[node] = {.input = node, .bias = graph_.node(node).parameters[1]};
      }
      return;
    }
    case OpKind::relu:
      return see_relu(node);
    case OpKind::gelu:
      return see_gelu(node);
    case OpKind::max_pool:
      return see_pool(node);
    default:
      return;
  }
}

void Patterns::see_relu(int relu) {
  if (const auto pattern = norm_before(relu)) {
    norms_[relu] = *pattern;
    inside_[pattern->norm] = true;
    if (pattern->residual_norm >= 0) inside_[pattern->residual_norm] = true;
    if (pattern->adds()) inside_[graph_.node(relu).inputs[0]] = true;
    return;
  }
  const int input = graph_.node(relu).inputs[0];
  const auto residual = residual_before(input);
  ActivationPattern pattern = residual ? *residual : activation_before(input);
  pattern.relu = relu;
  activations_[relu] = pattern;
}

void Patterns::see_gelu(int gelu) {
  const int input = graph_.node(gelu).inputs[0];
  const auto found = activations_.find(input);
  const bool bias_alone = found != activations_.end() && found->second.output() == input &&
                          found->second.input == input;
  ActivationPattern pattern =
      bias_alone ? activation_before(input) : ActivationPattern{.input = input};
  pattern.gelu = gelu;
  activations_[gelu] = pattern;
}

void Patterns::see_pool(int pool) {
  const int input = graph_.node(pool).inputs[0];
  const auto found = norms_.find(input);
  const bool read_alone = graph_.consumers(input).size() == 1;
  if (ours_ && found != norms_.end() && read_alone && !found->second.adds() &&
      graph_.node(pool).window == stem_pool_window) {
    NormPattern pattern = found->second;
    pattern.pool = pool;
    norms_.erase(found);
    norms_[pool] = pattern;
    inside_[input] = true;
    return;
  }
  ActivationPattern pattern = ours_ ? activation_before(input) : ActivationPattern{.input = input};
  pattern.pool = pool;
  activations_[pool] = pattern;
}

ActivationPattern Patterns::activation_before(int node) {
  const auto found = activations_.find(node);
  if (found == activations_.end() || found->second.pool >= 0 || found->second.gelu >= 0 ||
      graph_.consumers(node).size() != 1) {
    return {.input = node};
  }
  ActivationPattern pattern = found->second;
  activations_.erase(found);
  inside_[node] = node != pattern.input;
  return pattern;
}

std::optional<ActivationPattern> Patterns::residual_before(int add) {
  if (graph_.has_loss() || !graph_.is(add, OpKind::add) || graph_.consumers(add).size() != 1) {
    return std::nullopt;
  }
  // The later convolution, so that the other summand is there when it runs.
  const std::vector<int>& added = graph_.node(add).inputs;
  const int conv = std::max(added[0], added[1]);
  const auto found = activations_.find(conv);
  if (!graph_.is(conv, OpKind::conv) || found == activations_.end() ||
      graph_.consumers(conv).size() != 1) {
    return std::nullopt;
  }
  ActivationPattern pattern = found->second;
  pattern.residual = std::min(added[0], added[1]);
  activations_.erase(found);
  inside_[add] = true;
  return pattern;
}

bool Patterns::is_norm_of_convolution(int node) const {
  return graph_.is(node, OpKind::batch_norm) && graph_.consumers(node).size() == 1 &&
         graph_.is(graph_.node(node).inputs[0], OpKind::conv) &&
         graph_.norm_behind(graph_.node(node).inputs[0]) == node;
}

std::optional<NormPattern> Patterns::norm_before(int relu) const {
  if (!fuses_norms_) return std::nullopt;
  NormPattern pattern;
  pattern.output = relu;
  pattern.norm = graph_.node(relu).inputs[0];
  if (graph_.is(pattern.norm, OpKind::add) && graph_.sole_consumer(pattern.norm) == relu) {
    const std::vector<int>& added = graph_.node(pattern.norm).inputs;
    const bool left = is_norm_of_convolution(added[0]);
    pattern.norm = left ? added[0] : added[1];
    const int other = left ? added[1] : added[0];
    if (ours_ && other != pattern.norm && is_norm_of_convolution(other)) {
      pattern.residual_norm = other;
      pattern.residual_conv = graph_.node(other).inputs[0];
    } else {
      pattern.residual = other;
    }
  }
  if (!is_norm_of_convolution(pattern.norm)) return std::nullopt;
  pattern.conv = graph_.node(pattern.norm).inputs[0];
  return pattern;
}

cudnnBatchNormOps_t operations_of(const NormPattern& norm) {
  if (norm.output == norm.norm) return CUDNN_BATCHNORM_OPS_BN;
  return norm.adds() ? CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION : CUDNN_BATCHNORM_OPS_BN_ACTIVATION;
}

std::string name_of(const Graph& graph, const NormPattern& pattern) {
  std::string name = graph.node(pattern.norm).name;
  if (pattern.residual_norm >= 0) name += " + " + graph.node(pattern.residual_norm).name;
  name += " + " + graph.node(pattern.output).name;
  if (pattern.pool >= 0) name += " + " + graph.node(pattern.pool).name;
  return name;
}

std::string name_of(const Graph& graph, const ActivationPattern& pattern) {
  std::string name;
  const auto append = [&](const std::string& part) { name += (name.empty() ? "" : " + ") + part; };
  if (pattern.bias >= 0) append(graph.parameters()[pattern.bias].name);
  if (pattern.residual >= 0) append(graph.node(graph.sole_consumer(pattern.input)).name);
  if (pattern.relu >= 0) append(graph.node(pattern.relu).name);
  if (pattern.gelu >= 0) append(graph.node(pattern.gelu).name);
  if (pattern.pool >= 0) append(graph.node(pattern.pool).name);
  return name;
}

}  // namespace nearmetal::cuda
