// The operations of transformers: what they read and leave, and their parameters.
#include <stdexcept>
#include <utility>

#include "models/graph.h"

namespace nearmetal {

int Graph::layer_norm(int input, const std::string& name, double epsilon) {
  const Shape in = nodes_.at(input).shape;
  const int weight = add_parameter(name + ".weight", {in.channels}, Initialiser::one);
  const int bias = add_parameter(name + ".bias", {in.channels}, Initialiser::zero);
  Node node{OpKind::layer_norm, name, {input}, in, {}, {weight, bias}};
  node.epsilon = epsilon;
  return append(std::move(node));
}

int Graph::gelu(int input, const std::string& name) {
  return append({OpKind::gelu, name, {input}, nodes_.at(input).shape, {}, {}});
}

int Graph::token_linear(int input, const std::string& name, int64_t outputs, TokenLinearStart start,
                        const std::string& joint) {
  if (outputs < 1) throw std::invalid_argument(name + ": it needs at least 1 output");
  Shape shape = nodes_.at(input).shape;
  const int64_t inputs = std::exchange(shape.channels, outputs);
  const auto fan = [&](Initialiser initialiser) {
    return initialiser == Initialiser::xavier_uniform ? inputs + outputs : inputs;
  };
  const int weight =
      add_parameter(name + joint + "weight", {outputs, inputs}, start.weight, fan(start.weight));
  const int bias = add_parameter(name + joint + "bias", {outputs}, start.bias, fan(start.bias));
  return append({OpKind::token_linear, name, {input}, shape, {}, {weight, bias}});
}

int Graph::attention(int input, const std::string& name, int64_t heads) {
  Shape shape = nodes_.at(input).shape;
  if (shape.channels % 3 != 0) {
    throw std::invalid_argument(name + ": " + std::to_string(shape.channels) +
                                " values of a token do not divide into q, k and v");
  }
  shape.channels /= 3;
  if (heads < 1 || shape.channels % heads != 0) {
    throw std::invalid_argument(name + ": " + std::to_string(shape.channels) +
                                " features do not divide into " + std::to_string(heads) + " heads");
  }
  Node node{OpKind::attention, name, {input}, shape, {}, {}};
  node.heads = heads;
  return append(std::move(node));
}

int Graph::class_token(int input, const std::string& name) {
  const Shape in = nodes_.at(input).shape;
  const int token = add_parameter(name, {1, 1, in.channels}, Initialiser::zero);
  return append({OpKind::class_token, name, {input}, {in.channels, 1 + in.tokens()}, {}, {token}});
}

int Graph::positions(int input, const std::string& name) {
  const Shape in = nodes_.at(input).shape;
  const int vectors = add_parameter(name, {1, in.tokens(), in.channels}, Initialiser::normal_0_02);
  return append({OpKind::positions, name, {input}, in, {}, {vectors}});
}

int Graph::select_token(int input, const std::string& name) {
  return append({OpKind::select_token, name, {input}, {nodes_.at(input).shape.channels}, {}, {}});
}

}  // namespace nearmetal
