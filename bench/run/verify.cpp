#include "bench/run/verify.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/graph.h"
#include "models/synthetic.h"

namespace nearmetal {
namespace {

constexpr int64_t most_samples = 16;
constexpr int64_t most_steps_cuda = 60;
constexpr int64_t most_steps_cpu = 30;  // a step takes seconds there

struct FixedSet {
  std::vector<float> images;
  std::vector<int32_t> labels;
};

// `distinct` images with labels spread over the classes, repeated until the batch is full.
FixedSet fixed_set(const Graph& graph, uint64_t seed, int64_t batch, int64_t distinct) {
  const int64_t image_elements = graph.image().elements();
  FixedSet set;
  set.images.resize(batch * image_elements);
  set.labels.resize(batch);
  for (int64_t i = 0; i < distinct * image_elements; ++i) set.images[i] = normal_at(seed, i);
  for (int64_t image = 0; image < batch; ++image) {
    const int64_t original = image % distinct;
    set.labels[image] = static_cast<int32_t>(original * graph.classes() / distinct);
    if (image == original) continue;
    std::copy_n(set.images.begin() + original * image_elements, image_elements,
                set.images.begin() + image * image_elements);
  }
  return set;
}

}  // namespace

std::optional<Verify> verify_learning(Program& program, const Graph& graph, const RunConfig& config,
                                      const std::atomic<int>& stop) {
  const auto seed = static_cast<uint64_t>(config.seed);
  Verify result;
  result.samples = std::min(most_samples, *config.batch);
  result.maximum_steps = config.device == Device::cuda ? most_steps_cuda : most_steps_cpu;
  result.bound = 0.5 * std::log(static_cast<double>(graph.classes()));
  // Not the images that it trains on.
  const FixedSet set =
      fixed_set(graph, substream(seed, 0x766572696679), *config.batch, result.samples);
  program.restart(initial_parameters(graph, seed, config.zero_init));
  program.use_batch(set.images, set.labels);
  while (!result.passed && result.steps < result.maximum_steps && stop == 0) {
    program.enqueue_step();
    const double loss = program.wait_step().loss;
    ++result.steps;
    if (!std::isfinite(loss)) {
      result.last_loss = Unknown{"the loss is not finite"};
      break;
    }
    if (result.steps == 1) result.first_loss = loss;
    result.last_loss = loss;
    result.passed = loss < result.bound;
  }
  return stop == 0 ? std::optional(result) : std::nullopt;
}

}  // namespace nearmetal
