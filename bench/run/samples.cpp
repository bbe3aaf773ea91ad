#include "bench/run/samples.h"

#include "models/synthetic.h"

namespace nearmetal {
namespace {

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
