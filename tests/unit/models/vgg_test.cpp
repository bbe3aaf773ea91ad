#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>

#include "models/networks/registry.h"

namespace nearmetal {
namespace {

using ::testing::ElementsAre;

const Parameter& parameter_of(const Graph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.parameters(), name, &Parameter::name);
  if (found == graph.parameters().end()) throw std::runtime_error("no parameter " + name);
  return *found;
}

// The published counts of torchvision.
TEST(Vgg, ParameterCounts) {
  EXPECT_EQ(build_network("vgg16").parameter_count(), 138'357'544);
  EXPECT_EQ(build_network("vgg16_bn").parameter_count(), 138'365'992);
}

TEST(Vgg, ParametersHaveTorchvisionsNamesAndShapes) {
  const Graph plain = build_network("vgg16"), with_norm = build_network("vgg16_bn");
  EXPECT_EQ(plain.parameters().size(), 32u);
  EXPECT_EQ(with_norm.parameters().size(), 58u);
  EXPECT_THAT(parameter_of(plain, "features.0.weight").dims, ElementsAre(64, 3, 3, 3));
  EXPECT_THAT(parameter_of(plain, "features.28.weight").dims, ElementsAre(512, 512, 3, 3));
  EXPECT_THAT(parameter_of(plain, "classifier.0.weight").dims, ElementsAre(4096, 25088));
  EXPECT_THAT(parameter_of(plain, "classifier.3.bias").dims, ElementsAre(4096));
  EXPECT_THAT(parameter_of(plain, "classifier.6.weight").dims, ElementsAre(1000, 4096));
  EXPECT_THAT(parameter_of(with_norm, "features.40.bias").dims, ElementsAre(512));
  EXPECT_THAT(parameter_of(with_norm, "features.41.weight").dims, ElementsAre(512));
}

// 15.47 GMAC, as published; the layer that reads the image has no gradient of its input.
TEST(Vgg, Flops) {
  const Graph graph = build_network("vgg16");
  EXPECT_NEAR(graph.forward_flops_per_sample() / 30.94e9, 1, 1e-3);
  EXPECT_NEAR(graph.training_flops_per_sample() / (3 * 30.94e9 - 0.1734e9), 1, 1e-3);
}

TEST(Vgg, SmallImagesHaveASmallFirstLinearLayer) {
  EXPECT_THAT(parameter_of(build_network("vgg16", {64, 10}), "classifier.0.weight").dims,
              ElementsAre(4096, 2048));
  EXPECT_THROW(build_network("vgg16", {31, 10}), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
