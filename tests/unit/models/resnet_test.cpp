#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "models/networks/registry.h"

namespace nearmetal {
namespace {

using ::testing::ElementsAre;

const Node& find_node(const Graph& graph, const std::string& name) {
  const auto found = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                                  [&](const Node& node) { return node.name == name; });
  if (found == graph.nodes().end()) throw std::runtime_error("no node " + name);
  return *found;
}

const Parameter& find_parameter(const Graph& graph, const std::string& name) {
  const auto found =
      std::find_if(graph.parameters().begin(), graph.parameters().end(),
                   [&](const Parameter& parameter) { return parameter.name == name; });
  if (found == graph.parameters().end()) throw std::runtime_error("no parameter " + name);
  return *found;
}

// The published counts of torchvision.
TEST(ResNet, ParameterCounts) {
  const std::map<std::string, int64_t> published = {
      {"resnet18", 11'689'512},     {"resnet34", 21'797'672},    {"resnet50", 25'557'032},
      {"resnet101", 44'549'160},    {"resnet152", 60'192'808},   {"resnet50_v1", 25'557'032},
      {"resnet101_v1", 44'549'160}, {"resnet152_v1", 60'192'808}};
  // The paper's count is 0.27 million; this one is with projections, and ten classes.
  EXPECT_EQ(build_network("resnet20", {32, 10}).parameter_count(), 272'474);
  for (const auto& [name, count] : published) {
    EXPECT_EQ(build_network(name).parameter_count(), count) << name;
  }
}

TEST(ResNet, ParametersHaveTorchvisionsNamesAndShapes) {
  const Graph graph = build_network("resnet50");
  EXPECT_EQ(graph.parameters().size(), 161u);
  std::set<std::string> names;
  for (const Parameter& parameter : graph.parameters()) names.insert(parameter.name);
  EXPECT_EQ(names.size(), 161u);
  const auto dims = [&](const std::string& name) { return find_parameter(graph, name).dims; };
  EXPECT_THAT(dims("conv1.weight"), ElementsAre(64, 3, 7, 7));
  EXPECT_THAT(dims("bn1.bias"), ElementsAre(64));
  EXPECT_THAT(dims("layer1.0.conv1.weight"), ElementsAre(64, 64, 1, 1));
  EXPECT_THAT(dims("layer1.0.downsample.0.weight"), ElementsAre(256, 64, 1, 1));
  EXPECT_THAT(dims("layer1.0.downsample.1.weight"), ElementsAre(256));
  EXPECT_THAT(dims("layer2.3.conv2.weight"), ElementsAre(128, 128, 3, 3));
  EXPECT_THAT(dims("layer4.2.bn3.weight"), ElementsAre(2048));
  EXPECT_THAT(dims("fc.weight"), ElementsAre(1000, 2048));
  EXPECT_THAT(dims("fc.bias"), ElementsAre(1000));
  EXPECT_EQ(build_network("resnet18").parameters().size(), 62u);
  EXPECT_THAT(find_parameter(build_network("resnet18"), "layer4.1.conv2.weight").dims,
              ElementsAre(512, 512, 3, 3));
}

// 2 per multiply-add: 4.089 GMAC forward, as published for v1.5; v1 strides earlier.
TEST(ResNet, Flops) {
  const Graph graph = build_network("resnet50");
  EXPECT_NEAR(graph.forward_flops_per_sample() / 8.178e9, 1, 1e-3);
  EXPECT_NEAR(graph.training_flops_per_sample() / 24.30e9, 1, 1e-3);
  EXPECT_NEAR(build_network("resnet50_v1").forward_flops_per_sample() / 7.716e9, 1, 1e-3);
  EXPECT_NEAR(build_network("resnet18").forward_flops_per_sample() / 3.628e9, 1, 1e-3);
}

TEST(ResNet, VersionsDifferInWhereABottleneckStrides) {
  const Graph v15 = build_network("resnet50"), v1 = build_network("resnet50_v1");
  EXPECT_EQ(find_node(v15, "layer2.0.conv1").window, (Window{1, 1, 0}));
  EXPECT_EQ(find_node(v15, "layer2.0.conv2").window, (Window{3, 2, 1}));
  EXPECT_EQ(find_node(v1, "layer2.0.conv1").window, (Window{1, 2, 0}));
  EXPECT_EQ(find_node(v1, "layer2.0.conv2").window, (Window{3, 1, 1}));
  EXPECT_EQ(find_node(v15, "layer2.0.relu").shape, find_node(v1, "layer2.0.relu").shape);
}

TEST(ResNet, ShapesAtAnySize) {
  const auto last = [](int64_t size) {
    return find_node(build_network("resnet50", {size, 10}), "layer4.2.relu").shape;
  };
  EXPECT_EQ(last(224), (Shape{2048, 7, 7}));
  EXPECT_EQ(last(225), (Shape{2048, 8, 8}));
  EXPECT_EQ(last(97), (Shape{2048, 4, 4}));
  EXPECT_EQ(last(32), (Shape{2048, 1, 1}));
  EXPECT_EQ(last(1), (Shape{2048, 1, 1}));  // padding makes up for the smallest image
  EXPECT_EQ(find_node(build_network("resnet18", {33}), "maxpool").shape, (Shape{64, 9, 9}));
  EXPECT_EQ(build_network("resnet18", {64, 13}).classes(), 13);
}

TEST(ResNet, EveryBlockEndsInAScaledResidualBranch) {
  for (const auto& [name, blocks] :
       std::map<std::string, int>{{"resnet18", 8}, {"resnet50", 16}, {"resnet152", 50}}) {
    const Graph graph = build_network(name);
    const auto scales =
        std::count_if(graph.parameters().begin(), graph.parameters().end(),
                      [](const Parameter& parameter) { return parameter.scales_residual_branch; });
    EXPECT_EQ(scales, blocks) << name;
  }
}

TEST(ResNet, RefusesBadInput) {
  for (const int64_t size : {0, -224}) {
    EXPECT_THROW(build_network("resnet50", {size}), std::invalid_argument) << size;
  }
  for (const int64_t classes : {1, 0, -1}) {
    EXPECT_THROW(build_network("resnet50", {224, classes}), std::invalid_argument) << classes;
  }
}

}  // namespace
}  // namespace nearmetal
