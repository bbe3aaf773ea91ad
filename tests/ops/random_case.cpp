#include "models/synthetic.h"
#include "tests/ops/check_program.h"

namespace nearmetal {

void RandomCase::give_to(Program& program) const {
  if (tokens.empty()) return program.use_batch(images, labels);
  program.use_sequences(tokens, labels);
}

ReferenceInputs RandomCase::inputs(const ProgramOptions& options) const {
  ReferenceInputs inputs;
  inputs.batch_size = options.batch_size;
  inputs.parameters = parameters;
  inputs.images = images;
  inputs.tokens = tokens;
  inputs.labels = labels;
  inputs.optimizer = options.optimizer;
  inputs.loss_scale = options.loss_scale.initial;
  return inputs;
}

RandomCase random_case(const Graph& graph, int64_t batch_size, uint64_t seed) {
  RandomCase random;
  random.parameters = initial_parameters(graph, seed);
  for (const Parameter& parameter : graph.parameters()) {
    const bool starts_alike =
        parameter.initialiser == Initialiser::one || parameter.initialiser == Initialiser::zero;
    if (parameter.dims.size() > 1 && !starts_alike) continue;  // random already
    // Weak residual branches, as training starts with and keeps: a deep network whose branches all
    // have scale 1 amplifies every rounding thousandfold.
    const float factor = parameter.scales_residual_branch ? 0.2f : 1.0f;
    for (int64_t i = 0; i < parameter.size; ++i) {
      float& value = random.parameters[parameter.offset + i];
      value += 0.2f * normal_at(substream(seed, 1), parameter.offset + i);
      value *= factor;
    }
  }
  const int64_t values = batch_size * graph.image().elements();
  for (int64_t i = 0; i < values; ++i) {
    if (graph.reads_tokens()) {
      random.tokens.push_back(token_at(substream(seed, 2), 0, i, graph.node(0).vocabulary));
    } else {
      random.images.push_back(normal_at(substream(seed, 2), i));
    }
  }
  for (int64_t i = 0; i < batch_size * graph.labels_per_sample(); ++i) {
    random.labels.push_back(label_at(substream(seed, 3), 0, i, graph.classes()));
  }
  return random;
}

}  // namespace nearmetal
