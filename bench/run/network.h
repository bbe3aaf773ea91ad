// The network of a run, its parameters, and samples that stay the same from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "models/graph.h"
#include "models/program.h"
#include "reports/document/types.h"

namespace nearmetal {

/// The network of a run, as it is trained.
Graph trained_graph_of(const RunConfig& config);
/// The network as it is trained or evaluated.
Graph graph_of(const RunConfig& config);

/// That network, each of whose cuts the settings name in one way then. Throws std::invalid_argument
/// where the network cannot be built for images of this size, cannot be trained on such a batch of
/// them, or has no such cuts.
Graph settle_network(RunConfig& config);

/// The parameters at the start. For inference those of a network that has not been trained are
/// folded with expected_statistics().
std::vector<float> start_parameters(const RunConfig& config);

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
