// VGG-16 (Simonyan and Zisserman, 2014, arXiv 1409.1556, configuration D), plain and with batch
// norm. Names and counts of parameters are torchvision's. Dropout has probability 0: it computes
// nothing. torchvision pools the last feature map to 7 x 7, which changes nothing at 224 x 224;
// here the first linear layer reads the map as it is, so that it is smaller for smaller images.
#include "models/networks/registry.h"

namespace nearmetal {
namespace {

constexpr int pool = 0;  // in place of a number of channels
constexpr int layers[] = {64,   64,  pool, 128, 128,  pool, 256, 256, 256,
                          pool, 512, 512,  512, pool, 512,  512, 512, pool};
constexpr int64_t hidden_features = 4096;

Graph build(const std::string& name, bool with_norm, const NetworkOptions& options) {
  Graph graph(name);
  int x = graph.input({3, options.image_size, options.image_size});
  int index = 0;  // of torchvision's sequence
  const auto next = [&] { return "features." + std::to_string(index++); };
  for (const int channels : layers) {
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
