// Samples that stay the same from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "models/graph.h"
#include "models/program.h"

namespace nearmetal {

struct Samples {
  std::vector<float> images;
  std::vector<int32_t> tokens;  // in place of images
  std::vector<int32_t> labels;

  void give_to(Program& program) const;
};

/// `distinct` samples with labels spread over the classes, repeated until the batch is full.
Samples repeated_samples(const Graph& graph, uint64_t seed, int64_t batch, int64_t distinct);

/// The samples that a program with this data_seed draws for its first step.
Samples first_samples(const Graph& graph, uint64_t data_seed, int64_t batch);

}  // namespace nearmetal
