#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/networks/registry.h"

namespace nearmetal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<int64_t> dims_of(const Graph& graph, const std::string& parameter) {
  const auto found = std::ranges::find(graph.parameters(), parameter, &Parameter::name);
  if (found == graph.parameters().end()) throw std::runtime_error("no parameter " + parameter);
  return found->dims;
}

// As published by torchvision.
TEST(Vit, ParameterCount) { EXPECT_EQ(build_network("vit_b_16").parameter_count(), 86'567'656); }

TEST(Vit, ParametersHaveTorchvisionsNamesAndShapes) {
  const Graph graph = build_network("vit_b_16");
  EXPECT_EQ(graph.parameters().size(), 152u);
  const auto dims = [&](const std::string& name) { return dims_of(graph, name); };
  EXPECT_THAT(dims("class_token"), ElementsAre(1, 1, 768));
  EXPECT_THAT(dims("conv_proj.weight"), ElementsAre(768, 3, 16, 16));
  EXPECT_THAT(dims("encoder.pos_embedding"), ElementsAre(1, 197, 768));
  const std::string layer = "encoder.layers.encoder_layer_11.";
  EXPECT_THAT(dims(layer + "ln_1.weight"), ElementsAre(768));
  EXPECT_THAT(dims(layer + "self_attention.in_proj_weight"), ElementsAre(2304, 768));
  EXPECT_THAT(dims(layer + "self_attention.in_proj_bias"), ElementsAre(2304));
  EXPECT_THAT(dims(layer + "self_attention.out_proj.weight"), ElementsAre(768, 768));
  EXPECT_THAT(dims(layer + "ln_2.bias"), ElementsAre(768));
  EXPECT_THAT(dims(layer + "mlp.0.weight"), ElementsAre(3072, 768));
  EXPECT_THAT(dims(layer + "mlp.3.bias"), ElementsAre(768));
  EXPECT_THAT(dims("encoder.ln.bias"), ElementsAre(768));
  EXPECT_THAT(dims("heads.head.weight"), ElementsAre(1000, 768));
}

// 17.56 GMAC, as published; the layer that reads the image has no gradient of its input.
TEST(Vit, Flops) {
  const Graph graph = build_network("vit_b_16");
  EXPECT_NEAR(graph.forward_flops_per_sample() / 35.13e9, 1, 1e-3);
  EXPECT_NEAR(graph.training_flops_per_sample() / (3 * 35.13e9 - 0.2312e9), 1, 1e-3);
}

TEST(Vit, SmallImagesHaveFewTokens) {
  const Graph graph = build_network("vit_b_16", {32, 10});
  EXPECT_THAT(dims_of(graph, "encoder.pos_embedding"), ElementsAre(1, 5, 768));
}

TEST(Vit, RefusesWhatDoesNotDivide) {
  for (const int64_t size : {15, 50, 225}) {
    EXPECT_THAT(
        [&] {
          build_network("vit_b_16", {size, 10});
        },
        ThrowsMessage<std::invalid_argument>(
            testing::AllOf(HasSubstr("16 x 16"), HasSubstr(std::to_string(size)))));
  }
  EXPECT_THAT(
      [] {
        vision_transformer("odd",
                           {.patch = 4, .layers = 1, .heads = 5, .features = 12, .mlp_features = 8},
                           {3, 8, 8}, 10);
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("12 features do not divide into 5 heads")));
}

}  // namespace
}  // namespace nearmetal
