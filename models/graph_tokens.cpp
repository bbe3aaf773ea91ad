// The operations of transformers: what they read and leave, and their parameters.
#include <stdexcept>
#include <utility>

#include "models/graph.h"

namespace nearmetal {

int Graph::token_ids(int64_t tokens, int64_t vocabulary) {
  if (tokens < 1) throw std::invalid_argument("a sequence needs at least 1 token");
  Node node{OpKind::token_ids, "tokens", {}, {1, tokens}, {}, {}};
  node.vocabulary = vocabulary;
  return append(std::move(node));
}

int Graph::embedding(int input, const std::string& name, int64_t features,
                     const EmbeddingRows& rows) {
  const Shape ids = nodes_.at(input).shape;
  if (ids.tokens() > rows.positions) {
    throw std::invalid_argument(name_ + " takes sequences of up to " +
                                std::to_string(rows.positions) + " tokens, not of " +
                                std::to_string(ids.tokens()));
  }
  if (!is(input, OpKind::token_ids) || nodes_[input].vocabulary > rows.words || rows.types < 1) {
    throw std::invalid_argument(name + ": it needs tokens, and a row for each and for their type");
  }
  const auto table = [&](const char* of, int64_t count) {
    return add_parameter(name + "." + of + "_embeddings.weight", {count, features},
                         Initialiser::normal_0_02);
  };
  const int words = table("word", rows.words), positions = table("position", rows.positions);
  const int types = table("token_type", rows.types);
  return append(
      {OpKind::embedding, name, {input}, {features, ids.tokens()}, {}, {words, positions, types}});
}

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

int Graph::packed_linear(int input, const std::string& name, int64_t outputs,
                         const std::vector<std::string>& parts, TokenLinearStart start) {
  if (parts.empty() || outputs % std::ssize(parts) != 0) {
    throw std::invalid_argument(name + ": " + std::to_string(outputs) +
                                " outputs do not divide into " + std::to_string(parts.size()));
  }
  const int packed = token_linear(input, name, outputs, start);
  for (const int parameter : nodes_[packed].parameters) {
    Parameter& whole = parameters_[parameter];
    const std::string kind = whole.name.substr(name.size());
    for (const std::string& part : parts) whole.parts.push_back(part + kind);
  }
  return packed;
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

int Graph::span_loss(int input, const std::string& name) {
  if (nodes_.at(input).shape.channels != 2) {
    throw std::invalid_argument(name + ": it needs the logits of start and end of each token");
  }
  return append({OpKind::span_loss, name, {input}, {1}, {}, {}});
}

int Graph::select_token(int input, const std::string& name) {
  return append({OpKind::select_token, name, {input}, {nodes_.at(input).shape.channels}, {}, {}});
}

}  // namespace nearmetal
