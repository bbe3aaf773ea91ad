#include "bench/tf_cnn_benchmarks/models.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "models/networks/registry.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// The first of a network's two names is what it is called. The official ones are of
// tensorflow/models (official/r1/resnet), whose version 1 has the stride in the 3x3 convolution.
constexpr TfModel tf_models[] = {
    {"resnet50", "resnet50_v1", 64},
    {"resnet50_v1.5", "resnet50", 64},
    {"resnet101", "resnet101_v1", 32},
    {"resnet152", "resnet152_v1", 32},
    {"official_resnet18", "resnet18", 32},
    {"official_resnet34", "resnet34", 32},
    {"official_resnet50", "resnet50", 128},
    {"official_resnet101", "resnet101", 32},
    {"official_resnet152", "resnet152", 32},
    {"vgg11", "vgg11", 64},
    {"vgg16", "vgg16", 64},
    {"vgg19", "vgg19", 64},
};

bool is_here(const TfModel& model) {
  return std::ranges::find(networks(), model.ours, &Network::name) != networks().end();
}

}  // namespace

const TfModel& find_tf_model(const std::string& name) {
  std::vector<std::string> here;
  for (const TfModel& model : tf_models) {
    if (!is_here(model)) continue;
    if (model.name == name) return model;
    here.emplace_back(model.name);
  }
  const std::vector<std::string> ours = network_names();
  const bool known = std::ranges::find(ours, name) != ours.end();
  throw std::invalid_argument(
      "--model=" + name +
      (known
           ? ": tf_cnn_benchmarks does not have this network; train it by nearmetal run --model " +
                 name
           : ": nearmetal does not have this network; it has " + joined(here)));
}

std::string tf_model_name(const std::string& ours) {
  const auto found = std::ranges::find(tf_models, ours, &TfModel::ours);
  return found == std::end(tf_models) ? ours : found->name;
}

}  // namespace nearmetal
