// ResNet-18/34/50/101/152: "resnet50" is v1.5, "resnet50_v1" puts the stride of a bottleneck in its
// first 1x1 convolution as the paper did (He et al., 2015, arXiv 1512.03385). ResNet-18 and 34 have
// no bottleneck, so that their two versions are one. Names and counts of parameters are
// torchvision's. ResNet-20 is the paper's for images of 32 x 32 (its section 4.2), with
// projections.
#include <array>

#include "models/networks/registry.h"

namespace nearmetal {
namespace {

struct Variant {
  const char* name;
  std::array<int, 4> blocks;
  bool bottleneck;
  bool stride_in_first_conv;  // v1
  bool for_small_images = false;
};

constexpr Variant variants[] = {
    {"resnet18", {2, 2, 2, 2}, false, false},       {"resnet34", {3, 4, 6, 3}, false, false},
    {"resnet50", {3, 4, 6, 3}, true, false},        {"resnet101", {3, 4, 23, 3}, true, false},
    {"resnet152", {3, 8, 36, 3}, true, false},      {"resnet50_v1", {3, 4, 6, 3}, true, true},
    {"resnet101_v1", {3, 4, 23, 3}, true, true},    {"resnet152_v1", {3, 8, 36, 3}, true, true},
    {"resnet20", {3, 3, 3, 0}, false, false, true},
};

constexpr Window one_by_one(int64_t stride) { return {1, stride, 0}; }
constexpr Window three_by_three(int64_t stride) { return {3, stride, 1}; }

// A residual block's number of output channels is `width` times this.
int64_t expansion(const Variant& variant) { return variant.bottleneck ? 4 : 1; }

int shortcut(Graph& graph, int input, const std::string& name, int64_t channels, int64_t stride) {
  if (stride == 1 && graph.node(input).shape.channels == channels) return input;
  const int conv = graph.conv(input, name + ".downsample.0", channels, one_by_one(stride));
  return graph.batch_norm(conv, name + ".downsample.1");
}

int conv_norm_relu(Graph& graph, int input, const std::string& block, const std::string& number,
                   int64_t channels, Window window) {
  const int conv = graph.conv(input, block + ".conv" + number, channels, window);
  const int norm = graph.batch_norm(conv, block + ".bn" + number);
  return graph.relu(norm, block + ".relu" + number);
}

// conv 1x1, 3x3, 1x1 (bottleneck) or 3x3, 3x3 (basic), each with batch norm, plus the shortcut.
int residual_block(Graph& graph, int input, const Variant& variant, const std::string& name,
                   int64_t width, int64_t stride) {
  const int64_t channels = width * expansion(variant);
  int x = input;
  if (variant.bottleneck) {
    const int64_t first_stride = variant.stride_in_first_conv ? stride : 1;
    x = conv_norm_relu(graph, x, name, "1", width, one_by_one(first_stride));
    x = conv_norm_relu(graph, x, name, "2", width, three_by_three(stride / first_stride));
    x = graph.conv(x, name + ".conv3", channels, one_by_one(1));
    x = graph.batch_norm(x, name + ".bn3", true);
  } else {
    x = conv_norm_relu(graph, x, name, "1", width, three_by_three(stride));
    x = graph.conv(x, name + ".conv2", channels, three_by_three(1));
    x = graph.batch_norm(x, name + ".bn2", true);
  }
  x = graph.add(x, shortcut(graph, input, name, channels, stride), name + ".add");
  return graph.relu(x, name + ".relu");
}

Graph build(const Variant& variant, const NetworkOptions& options) {
  Graph graph(variant.name);
  const bool small = variant.for_small_images;
  int64_t width = small ? 16 : 64;
  int x = graph.input({3, options.image_size, options.image_size});  // 224 x 224 below
  x = graph.conv(x, "conv1", width, small ? three_by_three(1) : Window{7, 2, 3});  // 112 x 112
  x = graph.batch_norm(x, "bn1");
  x = graph.relu(x, "relu");
  if (!small) x = graph.max_pool(x, "maxpool", {3, 2, 1});  // 56 x 56
  for (int stage = 0; stage < 4; ++stage, width *= 2) {     // 56, 28, 14 and 7 pixels wide
    for (int block = 0; block < variant.blocks[stage]; ++block) {
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      x = residual_block(graph, x, variant,
                         "layer" + std::to_string(stage + 1) + "." + std::to_string(block), width,
                         stride);
    }
  }
  x = graph.global_average_pool(x, "avgpool");
  x = graph.linear(x, "fc", options.classes);
  graph.softmax_cross_entropy(x, "loss");
  return graph;
}

// VGG-16 (Simonyan and Zisserman, 2014, arXiv 1409.1556, configuration D), plain and with batch
// norm. Names and counts of parameters are torchvision's. Dropout has probability 0: it computes
// nothing. torchvision pools the last feature map to 7 x 7, which changes nothing at 224 x 224;
// here the first linear layer reads the map as it is, so that it is smaller for smaller images.

constexpr int pool = 0;  // in place of a number of channels
constexpr int vgg_layers[] = {64,   64,  pool, 128, 128,  pool, 256, 256, 256,
                              pool, 512, 512,  512, pool, 512,  512, 512, pool};
constexpr int64_t hidden_features = 4096;

Graph build(const std::string& name, bool with_norm, const NetworkOptions& options) {
  Graph graph(name);
  int x = graph.input({3, options.image_size, options.image_size});
  int index = 0;  // of torchvision's sequence
  const auto next = [&] { return "features." + std::to_string(index++); };
  for (const int channels : vgg_layers) {
    if (channels == pool) {
      x = graph.max_pool(x, next(), {2, 2, 0});
      continue;
    }
    x = graph.conv(x, next(), channels, {3, 1, 1}, Bias::present);
    if (with_norm) x = graph.batch_norm(x, next());
    x = graph.relu(x, next());
  }
  // "classifier.2" and "classifier.5" are dropout.
  x = graph.relu(graph.linear(x, "classifier.0", hidden_features, Initialiser::he_normal),
                 "classifier.1");
  x = graph.relu(graph.linear(x, "classifier.3", hidden_features, Initialiser::he_normal),
                 "classifier.4");
  x = graph.linear(x, "classifier.6", options.classes);
  graph.softmax_cross_entropy(x, "loss");
  return graph;
}

}  // namespace

std::vector<Network> resnet() {
  std::vector<Network> rows;
  for (const Variant& variant : variants) {
    rows.push_back({variant.name, SampleUnit::image, Optimizer::sgd,
                    [&variant](const NetworkOptions& options) { return build(variant, options); }});
  }
  return rows;
}

std::vector<Network> vgg() {
  std::vector<Network> rows;
  for (const bool with_norm : {false, true}) {
    const std::string name = with_norm ? "vgg16_bn" : "vgg16";
    rows.push_back({name, SampleUnit::image, Optimizer::sgd, [=](const NetworkOptions& options) {
                      return build(name, with_norm, options);
                    }});
  }
  return rows;
}

}  // namespace nearmetal
