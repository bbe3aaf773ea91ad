#include "models/cuda/compiler/node_shapes.h"

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

}  // namespace nearmetal::cuda
