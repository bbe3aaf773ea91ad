#include "models/inference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace nearmetal {
namespace {

// The batch norm that goes into this node; -1: none.
int folded_norm(const Graph& graph, int node) {
  return graph.is(node, OpKind::conv) ? graph.norm_behind(node) : -1;
}

std::span<const float> values_of(const Graph& graph, int parameter, std::span<const float> all) {
  const Parameter& found = graph.parameters()[parameter];
  return all.subspan(found.offset, found.size);
}

// Copies a node that stays; its inputs are those of the new graph.
int copy_node(const Graph& from, int index, const std::vector<int>& inputs, Graph& to) {
  const Node& node = from.node(index);
  if (node.op == OpKind::boundary) throw std::logic_error(node.name + " is not part of inference");
  if (node.op != OpKind::conv) return to.copy(from, node, inputs);
  const bool bias = node.has_bias() || folded_norm(from, index) >= 0;
  return to.conv(inputs[0], node.name, node.shape.channels, node.window,
                 bias ? Bias::present : Bias::absent,
                 from.parameters()[node.parameters[0]].initialiser);
}

struct ChannelStatistics {
  std::span<const float> mean, variance;
};

// The statistics of every batch norm, by node.
std::vector<ChannelStatistics> by_norm(const Graph& graph, std::span<const float> statistics) {
  std::vector<ChannelStatistics> found(graph.nodes().size());
  for (size_t i = 0; i < found.size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.op != OpKind::batch_norm) continue;
    const int64_t channels = node.shape.channels;
    found[i] = {statistics.first(channels), statistics.subspan(channels, channels)};
    statistics = statistics.subspan(2 * channels);
  }
  return found;
}

// Batch norm is an affine map of each channel: scale x value + shift.
void append_folded(const Graph& graph, const Node& conv, const Node& norm,
                   const ChannelStatistics& statistics, std::span<const float> parameters,
                   std::vector<float>& folded) {
  const auto weights = values_of(graph, conv.parameters[0], parameters);
  const auto gamma = values_of(graph, norm.parameters[0], parameters);
  const auto beta = values_of(graph, norm.parameters[1], parameters);
  const size_t channels = gamma.size(), of_channel = weights.size() / channels;
  std::vector<double> scale;
  for (size_t c = 0; c < channels; ++c) {
    scale.push_back(gamma[c] / std::sqrt(statistics.variance[c] + batch_norm_epsilon));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    folded.push_back(static_cast<float>(scale[i / of_channel] * weights[i]));
  }
  for (size_t c = 0; c < channels; ++c) {
    const float bias = conv.has_bias() ? values_of(graph, conv.parameters[1], parameters)[c] : 0.0f;
    const double shift = beta[c] - scale[c] * statistics.mean[c];
    folded.push_back(static_cast<float>(scale[c] * bias + shift));
  }
}

double mean_square(std::span<const float> values) {
  const double sum = std::transform_reduce(values.begin(), values.end(), 0.0, std::plus<>(),
                                           [](double value) { return value * value; });
  return sum / static_cast<double>(values.size());
}

// A ReLU stops half of what lies around 0, and hardly anything of a sum with what another ReLU
// left.
bool adds_to_relu(const Graph& graph, int node) {
  return graph.is(node, OpKind::add) &&
         std::ranges::any_of(graph.node(node).inputs,
                             [&](int input) { return graph.is(input, OpKind::relu); });
}

// The mean square of a node's values, from those of its inputs.
double mean_square_of(const Graph& graph, int index, std::span<const float> parameters,
                      const std::vector<double>& squares) {
  const Node& node = graph.node(index);
  const double input = node.inputs.empty() ? 1 : squares[node.inputs[0]];
  switch (node.op) {
    case OpKind::batch_norm:
    case OpKind::layer_norm:
      return mean_square(values_of(graph, node.parameters[0], parameters)) +
             mean_square(values_of(graph, node.parameters[1], parameters));
    case OpKind::relu:
      return adds_to_relu(graph, node.inputs[0]) ? input : input / 2;
    case OpKind::add:
      return input + squares[node.inputs[1]];
    case OpKind::conv: {
      const auto weights = values_of(graph, node.parameters[0], parameters);
      return input * mean_square(weights) * static_cast<double>(weights.size()) /
             static_cast<double>(node.shape.channels);
    }
    default:
      return input;
  }
}

}  // namespace

Graph inference_graph(const Graph& trained) {
  Graph graph(trained.name());
  std::vector<int> places(trained.nodes().size(), -1);  // of a node in the new graph
  for (int i = 0; i < static_cast<int>(places.size()); ++i) {
    const Node& node = trained.node(i);
    if (is_loss(node.op)) continue;
    std::vector<int> inputs;
    for (const int input : node.inputs) inputs.push_back(places[input]);
    if (node.op != OpKind::batch_norm) {
      places[i] = copy_node(trained, i, inputs, graph);
      continue;
    }
    if (folded_norm(trained, node.inputs[0]) != i) {
      throw std::invalid_argument("inference of " + trained.name() + ": " + node.name +
                                  " does not follow a convolution that nothing else reads");
    }
    places[i] = inputs[0];
  }
  return graph;
}

std::vector<float> inference_parameters(const Graph& trained, std::span<const float> parameters,
                                        std::span<const float> running_statistics) {
  const auto statistics = by_norm(trained, running_statistics);
  std::vector<float> folded;
  for (int i = 0; i < static_cast<int>(trained.nodes().size()); ++i) {
    const Node& node = trained.node(i);
    if (node.op == OpKind::batch_norm) continue;
    if (const int norm = folded_norm(trained, i); norm >= 0) {
      append_folded(trained, node, trained.node(norm), statistics[norm], parameters, folded);
      continue;
    }
    for (const int parameter : node.parameters) {
      const auto values = values_of(trained, parameter, parameters);
      folded.insert(folded.end(), values.begin(), values.end());
    }
  }
  return folded;
}

std::vector<float> expected_statistics(const Graph& trained, std::span<const float> parameters) {
  std::vector<double> squares;  // by node
  std::vector<float> statistics;
  for (int i = 0; i < static_cast<int>(trained.nodes().size()); ++i) {
    squares.push_back(mean_square_of(trained, i, parameters, squares));
    const Node& node = trained.node(i);
    if (node.op != OpKind::batch_norm || folded_norm(trained, node.inputs[0]) != i) continue;
    const Node& conv = trained.node(node.inputs[0]);
    const auto weights = values_of(trained, conv.parameters[0], parameters);
    const size_t of_channel = weights.size() / static_cast<size_t>(conv.shape.channels);
    if (conv.has_bias()) {
      const auto bias = values_of(trained, conv.parameters[1], parameters);
      statistics.insert(statistics.end(), bias.begin(), bias.end());
    } else {
      statistics.insert(statistics.end(), conv.shape.channels, 0.0f);
    }
    for (int64_t c = 0; c < conv.shape.channels; ++c) {
      const auto own = weights.subspan(c * of_channel, of_channel);
      statistics.push_back(static_cast<float>(squares[conv.inputs[0]] * mean_square(own) *
                                              static_cast<double>(of_channel)));
    }
  }
  return statistics;
}

}  // namespace nearmetal
