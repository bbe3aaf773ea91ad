// Transformers by their sizes, of which the registry names those of Google and torchvision.
#pragma once

#include <cstdint>
#include <string>

#include "models/graph.h"

namespace nearmetal {

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
