#include "bench/run/network.h"

#include <stdexcept>
#include <string>

#include "models/inference.h"
#include "models/networks/registry.h"
#include "models/pipeline_cuts.h"
#include "models/synthetic.h"

namespace nearmetal {
namespace {

// Batch norm would see one value per channel and give zero, whatever the value.
void require_trainable(const Graph& graph, const RunConfig& config) {
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::batch_norm || config.batch != 1 || !trains(config)) continue;
    if (node.shape.height * node.shape.width > 1) continue;
    throw std::invalid_argument("an image size of " + std::to_string(config.image_size) +
                                " is too small for a batch of 1: " + node.name +
                                " would normalise single values; use a larger one of the two");
  }
}

// Images or tokens, of so many values in all.
void append_inputs(const Graph& graph, uint64_t seed, int64_t values, Samples& samples) {
  for (int64_t i = 0; i < values; ++i) {
    if (graph.reads_tokens()) {
      samples.tokens.push_back(token_at(seed, 0, i, graph.node(0).vocabulary));
    } else {
      samples.images.push_back(normal_at(seed, i));
    }
  }
}

// Appends the values again, and again, up to `count`.
template <class T>
void repeat(std::vector<T>& values, int64_t count) {
  const auto distinct = std::ssize(values);
  if (distinct == 0) return;
  values.reserve(count);
  for (int64_t i = distinct; i < count; ++i) values.push_back(values[i - distinct]);
}

}  // namespace

Graph trained_graph_of(const RunConfig& config) {
  NetworkOptions options{.image_size = config.image_size, .classes = config.classes};
  if (config.sequence) options.sequence = *config.sequence;
  return build_network(config.model, options);
}

Graph graph_of(const RunConfig& config) {
  Graph trained = trained_graph_of(config);
  return config.inference ? inference_graph(trained) : trained;
}

Graph settle_network(RunConfig& config) {
  Graph graph = graph_of(config);
  require_trainable(graph, config);
  const auto stages = static_cast<int>(config.pipeline);
  if (config.cuts) config.cuts = cut_names(graph, named_cuts(graph, *config.cuts, stages));
  require_cut_points(graph, stages);
  return graph;
}

std::vector<float> start_parameters(const RunConfig& config) {
  const Graph trained = trained_graph_of(config);
  std::vector<float> parameters =
      initial_parameters(trained, static_cast<uint64_t>(config.seed), config.zero_init);
  if (!config.inference) return parameters;
  return inference_parameters(trained, parameters, expected_statistics(trained, parameters));
}

void Samples::give_to(Program& program) const {
  if (tokens.empty()) return program.use_batch(images, labels);
  program.use_sequences(tokens, labels);
}

Samples repeated_samples(const Graph& graph, uint64_t seed, int64_t batch, int64_t distinct) {
  const int64_t values = graph.image().elements();
  const int64_t labels = distinct * graph.labels_per_sample();
  Samples samples;
  append_inputs(graph, seed, distinct * values, samples);
  for (int64_t i = 0; i < labels; ++i) {
    samples.labels.push_back(static_cast<int32_t>(i * graph.classes() / labels));
  }
  repeat(samples.images, batch * values);
  repeat(samples.tokens, batch * values);
  repeat(samples.labels, batch * graph.labels_per_sample());
  return samples;
}

Samples first_samples(const Graph& graph, uint64_t data_seed, int64_t batch) {
  Samples samples;
  append_inputs(graph, image_seed(data_seed), batch * graph.image().elements(), samples);
  for (int64_t i = 0; i < batch * graph.labels_per_sample(); ++i) {
    samples.labels.push_back(label_at(label_seed(data_seed), 0, i, graph.classes()));
  }
  return samples;
}

}  // namespace nearmetal
