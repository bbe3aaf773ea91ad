// Every network by its name. A new one is a file beside this one and a row in registry.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/graph.h"
#include "models/sample_unit.h"
#include "models/training_options.h"

namespace nearmetal {

struct NetworkOptions {
  int64_t image_size = 224;  // height and width in pixels
  int64_t classes = 1000;
  int64_t sequence = 384;  // tokens
};

struct Network {
  std::string name;  // also of the graph
  SampleUnit sample;
  Optimizer optimizer;  // the customary one
  /// Throws std::invalid_argument for an image too small, under 2 classes or a sequence too long.
  std::function<Graph(const NetworkOptions&)> build;
};

const std::vector<Network>& networks();
std::vector<std::string> network_names();

/// Throws std::invalid_argument for an unknown name.
const Network& find_network(const std::string& name);
/// Throws std::invalid_argument for an unknown name, or options that the network cannot take.
Graph build_network(const std::string& name, const NetworkOptions& options = {});

}  // namespace nearmetal
