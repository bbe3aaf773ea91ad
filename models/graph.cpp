#include "models/graph.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "models/synthetic.h"

namespace nearmetal {
namespace {

int64_t slid(int64_t extent, const Window& window, const std::string& name) {
  const int64_t room = extent + 2 * window.padding - window.kernel;
  if (room < 0) {
    throw std::invalid_argument("the image is too small for this network: " + name + " slides a " +
                                std::to_string(window.kernel) + "-wide window over an input " +
                                std::to_string(extent) + " wide; use a larger image size");
  }
  return room / window.stride + 1;
}

Shape slid(const Shape& input, int64_t channels, const Window& window, const std::string& name) {
  return {channels, slid(input.height, window, name), slid(input.width, window, name)};
}

// Values of a parameter that one thread draws at a time.
struct Part {
  size_t parameter;
  int64_t begin, end;
};

// Parts of equal size, as a matrix has a thousand times the values of a bias.
std::vector<Part> parts_of(const std::vector<Parameter>& parameters) {
  constexpr int64_t most_values = 1 << 18;
  std::vector<Part> parts;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t size = parameters[i].size;
    for (int64_t begin = 0; begin < size; begin += most_values) {
      parts.push_back({i, begin, std::min(size, begin + most_values)});
    }
  }
  return parts;
}

void fill(const Parameter& parameter, const Part& part, uint64_t seed, bool zero_last_scale,
          float* values) {
  const auto generate = [&](auto value_at) {
    for (int64_t i = part.begin; i < part.end; ++i) values[i] = value_at(i);
  };
  const auto fan = static_cast<double>(parameter.fan);
  const auto normal = [&](float deviation) {
    generate([&](int64_t i) { return deviation * normal_at(seed, i); });
  };
  const auto uniform = [&](double bound) {
    generate([&](int64_t i) { return static_cast<float>(bound * (2 * uniform_at(seed, i) - 1)); });
  };
  switch (parameter.initialiser) {
    case Initialiser::he_normal:
      return normal(std::sqrt(2.0f / static_cast<float>(parameter.fan)));
    case Initialiser::lecun_normal:
      return normal(std::sqrt(1.0f / static_cast<float>(parameter.fan)));
    case Initialiser::normal_0_02:
      return normal(0.02f);
    case Initialiser::normal_1e_6:
      return normal(1e-6f);
    case Initialiser::uniform_fan_in:
      return uniform(0.5 / std::sqrt(fan));
    case Initialiser::uniform_fan_in_whole:
      return uniform(1 / std::sqrt(fan));
    case Initialiser::xavier_uniform:
      return uniform(std::sqrt(6 / fan));
    case Initialiser::one: {
      const bool zero = zero_last_scale && parameter.scales_residual_branch;
      return generate([&](int64_t) { return zero ? 0.0f : 1.0f; });
    }
    case Initialiser::zero:
      return generate([](int64_t) { return 0.0f; });
  }
}

}  // namespace

int Graph::append(Node node) {
  for (const int input : node.inputs) {
    if (input < 0 || input >= static_cast<int>(nodes_.size())) {
      throw std::logic_error(node.name + ": its input is not an earlier node");
    }
  }
  const int index = static_cast<int>(nodes_.size());
  for (const int input : node.inputs) consumers_[input].push_back(index);
  consumers_.emplace_back();
  nodes_.push_back(std::move(node));
  return index;
}

int Graph::add_parameter(std::string name, std::vector<int64_t> dims, Initialiser initialiser,
                         int64_t fan) {
  Parameter parameter{std::move(name), std::move(dims), initialiser, fan};
  parameter.offset = parameter_count();
  parameter.size = std::accumulate(parameter.dims.begin(), parameter.dims.end(), int64_t{1},
                                   std::multiplies<>());
  parameters_.push_back(std::move(parameter));
  return static_cast<int>(parameters_.size()) - 1;
}

int Graph::input(Shape image) {
  if (image.channels < 1 || image.height < 1 || image.width < 1) {
    throw std::invalid_argument("the image size must be at least 1");
  }
  return append({OpKind::input, "input", {}, image});
}

int Graph::conv(int input, const std::string& name, int64_t output_channels, Window window,
                Bias bias, Initialiser initialiser) {
  const Shape in = nodes_.at(input).shape;
  Node node{OpKind::conv, name, {input}, slid(in, output_channels, window, name), window, {}};
  const bool by_outputs = initialiser == Initialiser::he_normal;
  const int64_t fan = (by_outputs ? output_channels : in.channels) * window.kernel * window.kernel;
  node.parameters.push_back(
      add_parameter(name + ".weight", {output_channels, in.channels, window.kernel, window.kernel},
                    initialiser, fan));
  if (bias == Bias::present) {
    node.parameters.push_back(add_parameter(name + ".bias", {output_channels}, Initialiser::zero));
  }
  return append(std::move(node));
}

int Graph::batch_norm(int input, const std::string& name, bool scales_residual_branch) {
  const Shape in = nodes_.at(input).shape;
  const int weight = add_parameter(name + ".weight", {in.channels}, Initialiser::one);
  parameters_[weight].scales_residual_branch = scales_residual_branch;
  const int bias = add_parameter(name + ".bias", {in.channels}, Initialiser::zero);
  return append({OpKind::batch_norm, name, {input}, in, {}, {weight, bias}});
}

int Graph::add(int left, int right, const std::string& name) {
  if (nodes_.at(left).shape != nodes_.at(right).shape) {
    throw std::invalid_argument(name + ": the two inputs differ in shape");
  }
  return append({OpKind::add, name, {left, right}, nodes_.at(left).shape});
}

int Graph::max_pool(int input, const std::string& name, Window window) {
  const Shape in = nodes_.at(input).shape;
  return append({OpKind::max_pool, name, {input}, slid(in, in.channels, window, name), window, {}});
}

int Graph::linear(int input, const std::string& name, int64_t outputs, Initialiser initialiser) {
  if (outputs < 2) throw std::invalid_argument("a classifier needs at least 2 classes");
  const int64_t inputs = nodes_.at(input).shape.elements();
  const int weight = add_parameter(name + ".weight", {outputs, inputs}, initialiser, inputs);
  const Initialiser of_bias =
      initialiser == Initialiser::he_normal ? Initialiser::zero : initialiser;
  const int bias = add_parameter(name + ".bias", {outputs}, of_bias, inputs);
  return append({OpKind::linear, name, {input}, {outputs}, {}, {weight, bias}});
}

int Graph::receive(Shape value) {
  if (!nodes_.empty()) throw std::logic_error("a stage begins with what it receives");
  return append({OpKind::boundary, "from the stage before", {}, value});
}

int Graph::copy(const Graph& from, const Node& node, std::vector<int> inputs) {
  Node copied = node;
  copied.inputs = std::move(inputs);
  for (int& parameter : copied.parameters) {
    const Parameter& original = from.parameters().at(parameter);
    parameter = add_parameter(original.name, original.dims, original.initialiser, original.fan);
    parameters_.back().scales_residual_branch = original.scales_residual_branch;
    parameters_.back().parts = original.parts;
  }
  return append(std::move(copied));
}

const Node& Graph::classifier() const {
  const Node& last = nodes_.back();
  const Node& classifier = has_loss() ? nodes_.at(last.inputs.at(0)) : last;
  const bool is_linear = classifier.op == OpKind::linear || classifier.op == OpKind::token_linear;
  if (!is_linear) throw std::logic_error("the graph ends in no classifier");
  return classifier;
}

int64_t Graph::classes() const {
  const Node& last = classifier();
  return last.op == OpKind::linear ? last.shape.channels : last.shape.tokens();
}

int64_t Graph::features() const {
  const Node& last = classifier();
  return last.op == OpKind::linear ? input_shape(last).elements() : input_shape(last).channels;
}

double Graph::forward_flops(const Node& node) const {
  const auto tokens = static_cast<double>(node.shape.tokens());
  switch (node.op) {
    case OpKind::conv:
    case OpKind::linear:
    case OpKind::token_linear:
      return 2 * static_cast<double>(parameters_[node.parameters[0]].size) * tokens;
    case OpKind::attention:
      return 2 * 2 * tokens * tokens * static_cast<double>(node.shape.channels);
    default:
      return 0;
  }
}

double Graph::forward_flops_per_sample() const {
  double flops = 0;
  for (const Node& node : nodes_) flops += forward_flops(node);
  return flops;
}

double Graph::training_flops_per_sample() const {
  double flops = 0;
  for (const Node& node : nodes_) {
    if (node.inputs.empty()) continue;
    const bool reads_image = nodes_[node.inputs[0]].op == OpKind::input;
    flops += forward_flops(node) * (reads_image ? 2 : 3);
  }
  return flops;
}

int Graph::token_ids(int64_t tokens, int64_t vocabulary) {
  if (tokens < 1) throw std::invalid_argument("a sequence needs at least 1 token");
  return append({.op = OpKind::token_ids,
                 .name = "tokens",
                 .inputs = {},
                 .shape = {1, tokens},
                 .vocabulary = vocabulary});
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
  return append({OpKind::layer_norm, name, {input}, in, {}, {weight, bias}, 0, epsilon});
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
  return append({OpKind::attention, name, {input}, shape, {}, {}, heads});
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
  return append({OpKind::span_loss, name, {input}, {1}});
}

std::vector<float> initial_parameters(const Graph& graph, uint64_t seed, bool zero_last_scale) {
  std::vector<float> values(graph.parameter_count());
  const auto& parameters = graph.parameters();
  const std::vector<Part> parts = parts_of(parameters);
  std::atomic<size_t> next = 0;
  const unsigned workers = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  std::vector<std::jthread> threads;
  for (unsigned worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < parts.size(); i = next++) {
        const Parameter& parameter = parameters[parts[i].parameter];
        fill(parameter, parts[i], substream(seed, parts[i].parameter), zero_last_scale,
             values.data() + parameter.offset);
      }
    });
  }
  threads.clear();  // joins
  return values;
}

}  // namespace nearmetal
