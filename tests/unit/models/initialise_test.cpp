#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "models/graph.h"
#include "models/networks/registry.h"

namespace nearmetal {
namespace {

using ::testing::Each;

struct Spread {
  double mean = 0, deviation = 0, largest = 0;
};

Spread spread_of(std::span<const float> values) {
  Spread spread;
  for (const float value : values) {
    spread.mean += value;
    spread.deviation += static_cast<double>(value) * value;
    spread.largest = std::max(spread.largest, std::abs(static_cast<double>(value)));
  }
  const auto count = static_cast<double>(values.size());
  spread.mean /= count;
  spread.deviation = std::sqrt(spread.deviation / count - spread.mean * spread.mean);
  return spread;
}

// Sample moments lie within 5 standard errors: of a mean deviation / sqrt(n), of a normal's
// deviation deviation / sqrt(2 n), of a uniform's deviation / sqrt(5 n).
void expect_normal(std::span<const float> values, double deviation, const std::string& name) {
  const auto count = static_cast<double>(values.size());
  const Spread spread = spread_of(values);
  EXPECT_NEAR(spread.mean, 0, 5 * deviation / std::sqrt(count)) << name;
  EXPECT_NEAR(spread.deviation / deviation, 1, 5 / std::sqrt(2 * count)) << name;
  if (count > 1700) {  // else it may be by chance
    EXPECT_GT(spread.largest, 3 * deviation) << name;
  }
}

void expect_uniform(std::span<const float> values, double bound, const std::string& name) {
  const auto count = static_cast<double>(values.size());
  const Spread spread = spread_of(values);
  EXPECT_NEAR(spread.mean, 0, 5 * bound / std::sqrt(3 * count)) << name;
  EXPECT_NEAR(spread.deviation / (bound / std::sqrt(3.0)), 1, 5 / std::sqrt(5 * count)) << name;
  EXPECT_LE(spread.largest, bound * (1 + 1e-6)) << name;
}

void expect_start(const Parameter& parameter, std::span<const float> own) {
  const auto fan = static_cast<double>(parameter.fan);
  switch (parameter.initialiser) {
    case Initialiser::he_normal:
      return expect_normal(own, std::sqrt(2 / fan), parameter.name);
    case Initialiser::lecun_normal:
      return expect_normal(own, 1 / std::sqrt(fan), parameter.name);
    case Initialiser::normal_0_02:
      return expect_normal(own, 0.02, parameter.name);
    case Initialiser::normal_1e_6:
      return expect_normal(own, 1e-6, parameter.name);
    case Initialiser::uniform_fan_in:
      return expect_uniform(own, 0.5 / std::sqrt(fan), parameter.name);
    case Initialiser::uniform_fan_in_whole:
      return expect_uniform(own, 1 / std::sqrt(fan), parameter.name);
    case Initialiser::xavier_uniform:
      return expect_uniform(own, std::sqrt(6 / fan), parameter.name);
    case Initialiser::one:
      EXPECT_THAT(own, Each(1.0f)) << parameter.name;
      return;
    case Initialiser::zero:
      EXPECT_THAT(own, Each(0.0f)) << parameter.name;
      return;
  }
}

TEST(InitialParameters, FollowTheirDistribution) {
  for (const Graph& graph :
       {build_network("resnet18", {32}),
        vision_transformer(
            "small", {.patch = 4, .layers = 1, .heads = 2, .features = 96, .mlp_features = 384},
            {3, 16, 16}, 100)}) {
    const std::vector<float> values = initial_parameters(graph, 1);
    ASSERT_EQ(static_cast<int64_t>(values.size()), graph.parameter_count());
    for (const Parameter& parameter : graph.parameters()) {
      expect_start(parameter, std::span(values).subspan(parameter.offset, parameter.size));
    }
  }
}

TEST(InitialParameters, FollowTheSeedAlone) {
  const Graph graph = build_network("resnet18", {32, 10});
  const std::vector<float> first = initial_parameters(graph, 1);
  EXPECT_EQ(initial_parameters(graph, 1), first);
  EXPECT_EQ(initial_parameters(build_network("resnet18", {224, 10}), 1),
            first);  // not the image size
  const std::vector<float> second = initial_parameters(graph, 2);
  const Parameter& stem = graph.parameters().front();
  int equal = 0;
  for (int64_t i = 0; i < stem.size; ++i) equal += first[i] == second[i] ? 1 : 0;
  EXPECT_LT(equal, 3);
}

TEST(InitialParameters, LayersDiffer) {
  const Graph graph = build_network("resnet18", {32});
  const std::vector<float> values = initial_parameters(graph, 1);
  std::vector<std::vector<float>> starts;
  for (const Parameter& parameter : graph.parameters()) {
    if (parameter.dims.size() < 2) continue;
    const float scale = std::sqrt(static_cast<float>(parameter.fan));
    std::vector<float> start;
    for (int i = 0; i < 4; ++i) start.push_back(values[parameter.offset + i] * scale);
    EXPECT_THAT(starts, Each(::testing::Ne(start))) << parameter.name;
    starts.push_back(start);
  }
}

// Reports of one version stay comparable with those of the next.
TEST(InitialParameters, StayWhatTheyWere) {
  const std::vector<float> values = initial_parameters(build_network("resnet18"), 1);
  const float golden[] = {0.0074263047f, 0.010745304f,   -0.0082612429f,
                          0.005403277f,  -0.0014879083f, 0.013808682f};
  for (size_t i = 0; i < std::size(golden); ++i) EXPECT_NEAR(values[i], golden[i], 1e-6) << i;
}

TEST(InitialParameters, LastScalesOfBlocksMayStartAtZero) {
  const Graph graph = build_network("resnet18", {32});
  const std::vector<float> plain = initial_parameters(graph, 1);
  const std::vector<float> zeroed = initial_parameters(graph, 1, true);
  for (const Parameter& parameter : graph.parameters()) {
    const auto own = std::span(zeroed).subspan(parameter.offset, parameter.size);
    if (parameter.name.ends_with(".bn2.weight")) {
      EXPECT_THAT(own, Each(0.0f)) << parameter.name;
    } else {
      EXPECT_TRUE(std::equal(own.begin(), own.end(), plain.begin() + parameter.offset))
          << parameter.name;
    }
  }
}

}  // namespace
}  // namespace nearmetal
