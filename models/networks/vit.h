// The Vision Transformer by its sizes, of which the registry names those of torchvision.
#pragma once

#include <cstdint>
#include <string>

#include "models/graph.h"

namespace nearmetal {

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
