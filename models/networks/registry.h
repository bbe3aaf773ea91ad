// Every network by its name, and transformers by their sizes.
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

// Transformers, of which the networks above are those of Google and torchvision.

/// Devlin et al., 2018, arXiv 1810.04805, section 3.
struct Bert {
  int layers;
  int64_t heads;
  int64_t features;      // of a token
  int64_t mlp_features;  // between the two linear layers of an encoder layer
  int64_t vocabulary = 30522;
  int64_t positions = 512;  // the longest sequence
};

/// Throws std::invalid_argument for more tokens than positions, or heads that do not divide the
/// features.
Graph bert_for_question_answering(const std::string& name, const Bert& sizes, int64_t tokens);

/// Dosovitskiy et al., 2020, arXiv 2010.11929, table 1.
struct VisionTransformer {
  int64_t patch;  // height and width in pixels
  int layers;
  int64_t heads;
  int64_t features;      // of a token
  int64_t mlp_features;  // between the two linear layers of an encoder layer
};

/// Throws std::invalid_argument where patches do not divide the image, or heads the features.
Graph vision_transformer(const std::string& name, const VisionTransformer& sizes, Shape image,
                         int64_t classes);

}  // namespace nearmetal
