#include "models/graph.h"

#include <gmock/gmock.h>

#include <stdexcept>

namespace nearmetal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Graph, WindowSlidesOverOddImages) {
  Graph graph("test");
  const int image = graph.input({3, 33, 47});
  const auto shape = [&](Window window) {
    return graph.node(graph.conv(image, "conv", 8, window)).shape;
  };
  EXPECT_EQ(shape({7, 2, 3}), (Shape{8, 17, 24}));
  EXPECT_EQ(shape({3, 1, 1}), (Shape{8, 33, 47}));
  EXPECT_EQ(shape({3, 2, 0}), (Shape{8, 16, 23}));
  EXPECT_EQ(shape({1, 2, 0}), (Shape{8, 17, 24}));
  EXPECT_EQ(graph.node(graph.max_pool(image, "pool", {3, 2, 1})).shape, (Shape{3, 17, 24}));
}

TEST(Graph, ParametersLieBehindOneAnother) {
  Graph graph("test");
  const int conv = graph.conv(graph.input({3, 8, 8}), "conv", 16, {3, 1, 1});
  graph.linear(graph.global_average_pool(graph.batch_norm(conv, "norm", true), "pool"), "fc", 5);
  const auto& parameters = graph.parameters();
  ASSERT_EQ(parameters.size(), 5u);
  EXPECT_THAT(parameters[0].dims, ElementsAre(16, 3, 3, 3));
  EXPECT_EQ(parameters[0].fan, 16 * 9);
  EXPECT_TRUE(parameters[1].scales_residual_branch);
  EXPECT_FALSE(parameters[2].scales_residual_branch);
  EXPECT_THAT(parameters[3].dims, ElementsAre(5, 16));
  int64_t end = 0;
  for (const Parameter& parameter : parameters) {
    EXPECT_EQ(parameter.offset, end) << parameter.name;
    end += parameter.size;
  }
  EXPECT_EQ(graph.parameter_count(), end);
  EXPECT_EQ(end, 16 * 27 + 16 + 16 + 5 * 16 + 5);
}

TEST(Graph, TooSmallAnImageNamesTheLayer) {
  EXPECT_THAT(
      [] {
        Graph graph("test");
        const int first = graph.conv(graph.input({3, 4, 4}), "first", 8, {3, 2, 0});
        graph.conv(first, "second", 8, {3, 1, 0});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("second")));
}

TEST(Graph, RefusesWhatDoesNotFit) {
  Graph graph("test");
  const int image = graph.input({3, 8, 8});
  const int conv = graph.conv(image, "conv", 8, {3, 1, 1});
  EXPECT_THAT([&] { graph.add(image, conv, "the sum"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("the sum")));
  EXPECT_THROW(graph.linear(conv, "fc", 1), std::invalid_argument);
  EXPECT_THROW(Graph("test").input({3, 0, 8}), std::invalid_argument);
  EXPECT_THROW(Graph("test").conv(0, "conv", 8, {}), std::exception);
  EXPECT_THROW(graph.classes(), std::logic_error);  // no loss
}

TEST(Graph, FlopsOfOneConvolutionByHand) {
  Graph graph("test");
  const int image = graph.input({3, 8, 8});
  const int first = graph.conv(image, "first", 16, {3, 1, 1});
  const int second = graph.conv(first, "second", 4, {1, 2, 0});
  const double first_flops = 2.0 * 16 * 27 * 64, second_flops = 2.0 * 4 * 16 * 16;
  EXPECT_EQ(graph.forward_flops(graph.node(first)), first_flops);
  EXPECT_EQ(graph.forward_flops(graph.node(second)), second_flops);
  EXPECT_EQ(graph.forward_flops(graph.node(image)), 0);
  EXPECT_EQ(graph.forward_flops_per_sample(), first_flops + second_flops);
  EXPECT_EQ(graph.training_flops_per_sample(), 2 * first_flops + 3 * second_flops);
}

TEST(Graph, TokensArePixels) {
  Graph graph("test");
  const int linear = graph.token_linear(graph.input({3, 5, 7}), "linear", 12);
  EXPECT_EQ(graph.node(linear).shape, (Shape{12, 5, 7}));
  const int attention = graph.attention(linear, "attention", 2);
  EXPECT_EQ(graph.node(attention).shape, (Shape{4, 5, 7}));
  const int all = graph.class_token(attention, "class");
  EXPECT_EQ(graph.node(all).shape, (Shape{4, 36, 1}));
  EXPECT_EQ(graph.node(graph.positions(all, "positions")).shape, (Shape{4, 36, 1}));
  EXPECT_EQ(graph.node(graph.select_token(all, "first")).shape, (Shape{4, 1, 1}));
  EXPECT_EQ(graph.forward_flops(graph.node(linear)), 2.0 * 3 * 12 * 35);
  EXPECT_EQ(graph.forward_flops(graph.node(attention)), 4.0 * 35 * 35 * 4);
  EXPECT_EQ(graph.training_flops_per_sample(), 2 * 2.0 * 3 * 12 * 35 + 3 * 4.0 * 35 * 35 * 4);
}

TEST(Graph, EmbeddingsReadTokensOfTheirTables) {
  Graph graph("test");
  const int ids = graph.token_ids(5, 7);
  const int embedded = graph.embedding(ids, "embedding", 4, {7, 6, 2});
  EXPECT_EQ(graph.node(embedded).shape, (Shape{4, 5}));
  EXPECT_EQ(graph.parameter_count(), (7 + 6 + 2) * 4);
  EXPECT_EQ(graph.forward_flops(graph.node(embedded)), 0);
  EXPECT_THROW(graph.embedding(ids, "short", 4, {7, 4, 2}), std::invalid_argument);
  EXPECT_THROW(graph.embedding(ids, "few", 4, {6, 6, 2}), std::invalid_argument);
  EXPECT_THROW(graph.embedding(embedded, "of no ids", 4, {7, 6, 2}), std::invalid_argument);
  EXPECT_THROW(graph.span_loss(embedded, "loss"), std::invalid_argument);
}

TEST(Graph, PackedLinearLayersHaveTheNamesOfTheirParts) {
  Graph graph("test");
  const int image = graph.input({3, 5, 7});
  const int packed = graph.packed_linear(image, "both", 8, {"left", "right"}, {});
  const Node& node = graph.node(packed);
  EXPECT_THAT(graph.parameters()[node.parameters[0]].parts,
              ElementsAre("left.weight", "right.weight"));
  EXPECT_THAT(graph.parameters()[node.parameters[1]].parts, ElementsAre("left.bias", "right.bias"));
  Graph to("to");
  to.copy(graph, node, {to.input({3, 5, 7})});
  EXPECT_EQ(to.parameters()[0].parts, graph.parameters()[0].parts);
  EXPECT_THROW(graph.packed_linear(image, "odd", 7, {"left", "right"}, {}), std::invalid_argument);
}

TEST(Graph, AttentionRefusesWhatDoesNotDivide) {
  Graph graph("test");
  const int image = graph.input({12, 3, 1});
  EXPECT_THAT([&] { graph.attention(graph.token_linear(image, "q", 13), "odd", 1); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("odd: 13 values of a token")));
  for (const int64_t heads : {0, 3, 8}) {
    EXPECT_THAT([&] { graph.attention(image, "odd", heads); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("odd: 4 features do not divide")));
  }
  EXPECT_THROW(graph.token_linear(image, "none", 0), std::invalid_argument);
}

TEST(Graph, CopiesANodeWithItsParameters) {
  Graph from("from"), to("to");
  const int norm = from.layer_norm(from.input({4, 2, 2}), "norm", 1e-12);
  const int copied = to.copy(from, from.node(norm), {to.input({4, 2, 2})});
  EXPECT_EQ(to.node(copied).epsilon, 1e-12);
  EXPECT_EQ(to.parameters()[to.node(copied).parameters[1]].name, "norm.bias");
  EXPECT_EQ(to.parameter_count(), from.parameter_count());
}

TEST(OpKind, HasAName) {
  EXPECT_STREQ(to_string(OpKind::conv), "conv");
  EXPECT_STREQ(to_string(OpKind::select_token), "select_token");
  EXPECT_STREQ(to_string(OpKind::softmax_cross_entropy), "softmax_cross_entropy");
}

}  // namespace
}  // namespace nearmetal
