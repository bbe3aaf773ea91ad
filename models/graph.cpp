#include "models/graph.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

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
  return append({OpKind::input, "input", {}, image, {}, {}});
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

int Graph::relu(int input, const std::string& name) {
  return append({OpKind::relu, name, {input}, nodes_.at(input).shape, {}, {}});
}

int Graph::add(int left, int right, const std::string& name) {
  if (nodes_.at(left).shape != nodes_.at(right).shape) {
    throw std::invalid_argument(name + ": the two inputs differ in shape");
  }
  return append({OpKind::add, name, {left, right}, nodes_.at(left).shape, {}, {}});
}

int Graph::max_pool(int input, const std::string& name, Window window) {
  const Shape in = nodes_.at(input).shape;
  return append({OpKind::max_pool, name, {input}, slid(in, in.channels, window, name), window, {}});
}

int Graph::global_average_pool(int input, const std::string& name) {
  return append(
      {OpKind::global_average_pool, name, {input}, {nodes_.at(input).shape.channels}, {}, {}});
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

int Graph::softmax_cross_entropy(int input, const std::string& name) {
  return append({OpKind::softmax_cross_entropy, name, {input}, {1}, {}, {}});
}

int Graph::receive(Shape value) {
  if (!nodes_.empty()) throw std::logic_error("a stage begins with what it receives");
  return append({OpKind::boundary, "from the stage before", {}, value, {}, {}});
}

int Graph::send(int input) {
  return append({OpKind::boundary, "to the stage behind", {input}, nodes_.at(input).shape, {}, {}});
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

const Shape& Graph::input_shape(const Node& node) const {
  return nodes_.at(node.inputs.at(0)).shape;
}

int64_t Graph::parameter_count() const {
  return parameters_.empty() ? 0 : parameters_.back().offset + parameters_.back().size;
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

int64_t Graph::logits_per_sample() const { return classifier().shape.elements(); }

int64_t Graph::largest_tensor_elements() const {
  int64_t largest = 0;
  for (const Node& node : nodes_) largest = std::max(largest, node.shape.elements());
  return largest;
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

}  // namespace nearmetal
