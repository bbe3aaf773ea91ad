// ResNet-18/34/50/101/152, v1 and v1.5, as a Graph.
#pragma once

#include <string>
#include <vector>

#include "models/graph.h"

namespace nearmetal {

/// The names that resnet() takes: "resnet50" is v1.5, "resnet50_v1" puts the stride of a bottleneck
/// in its first 1x1 convolution as the paper did (He et al., 2015, arXiv 1512.03385). ResNet-18 and
/// 34 have no bottleneck, so that their two versions are one.
std::vector<std::string> resnet_names();

/// `image_size` is height and width in pixels. Parameter names and counts are torchvision's.
/// Throws std::invalid_argument for an unknown name, an image too small or under 2 classes.
Graph resnet(const std::string& name, int64_t image_size = 224, int64_t classes = 1000);

}  // namespace nearmetal
