#include "tests/ops/graphs.h"

#include "models/networks/registry.h"

namespace nearmetal {
namespace {

int conv_norm_relu(Graph& graph, int input, const std::string& name, int64_t channels,
                   Window window) {
  const int conv = graph.conv(input, name, channels, window);
  return graph.relu(graph.batch_norm(conv, name + ".norm"), name + ".relu");
}

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Graph classified(Graph graph, int features, int64_t classes) {
  const int pooled = graph.global_average_pool(features, "avgpool");
  graph.softmax_cross_entropy(graph.linear(pooled, "fc", classes), "loss");
  return graph;
}

}  // namespace

Graph conv_graph(Window window, Shape image, int64_t channels, int64_t classes) {
  Graph graph("conv");
  const int stem = conv_norm_relu(graph, graph.input(image), "stem", 8, {3, 1, 1});
  const int conv = conv_norm_relu(graph, stem, "conv", channels, window);
  return classified(std::move(graph), conv, classes);
}

Graph stem_graph(Window window, Shape image, bool pooled, int64_t channels) {
  Graph graph("stem");
  int x = conv_norm_relu(graph, graph.input(image), "stem", channels, window);
  if (pooled) x = graph.max_pool(x, "pool", {3, 2, 1});
  return classified(std::move(graph), x, 10);
}

Graph small_graph(int64_t image_size, int64_t classes) {
  Graph graph("small");
  int x = graph.input({3, image_size, image_size});
  x = conv_norm_relu(graph, x, "stem", 16, {7, 2, 3});
  const int block = graph.max_pool(x, "pool", {3, 2, 1});
  x = conv_norm_relu(graph, block, "conv1", 16, {3, 1, 1});
  x = graph.batch_norm(graph.conv(x, "conv2", 16, {3, 1, 1}), "conv2.norm", true);
  x = graph.relu(graph.add(x, block, "add"), "relu");
  return classified(std::move(graph), x, classes);
}

Graph bottleneck_graph(int64_t image_size, int64_t classes) {
  Graph graph("bottleneck");
  const int stem =
      conv_norm_relu(graph, graph.input({3, image_size, image_size}), "stem", 16, {3, 1, 1});
  int x = conv_norm_relu(graph, stem, "conv1", 8, {1, 1, 0});
  x = conv_norm_relu(graph, x, "conv2", 8, {3, 2, 1});
  x = graph.batch_norm(graph.conv(x, "conv3", 32, {1, 1, 0}), "conv3.norm", true);
  const int shortcut =
      graph.batch_norm(graph.conv(stem, "projection", 32, {1, 2, 0}), "projection.norm");
  x = graph.relu(graph.add(x, shortcut, "add"), "relu");
  return classified(std::move(graph), x, classes);
}

Graph wide_bottlenecks_graph(Shape image) {
  Graph graph("wide_bottlenecks");
  int x = conv_norm_relu(graph, graph.input(image), "stem", 64, {3, 1, 1});
  const auto block = [&](const std::string& name, int64_t channels, int64_t stride, bool first) {
    const int input = x;
    x = conv_norm_relu(graph, x, name + ".conv1", channels, {1, 1, 0});
    x = conv_norm_relu(graph, x, name + ".conv2", channels, {3, stride, 1});
    x = graph.conv(x, name + ".conv3", 4 * channels, {1, 1, 0});
    x = graph.batch_norm(x, name + ".norm", true);
    const auto projected = [&] {
      const int conv = graph.conv(input, name + ".projection", 4 * channels, {1, stride, 0});
      return graph.batch_norm(conv, name + ".projection.norm");
    };
    x = graph.relu(graph.add(x, first ? projected() : input, name + ".add"), name + ".relu");
  };
  block("1.0", 64, 1, true);
  block("1.1", 64, 1, false);
  block("2.0", 128, 2, true);
  block("2.1", 128, 1, false);
  x = conv_norm_relu(graph, x, "last", 16, {1, 1, 0});
  return classified(std::move(graph), x, 10);
}

Graph two_block_graph(Shape image, bool stride_in_first_conv) {
  Graph graph("two_block");
  const int stem = conv_norm_relu(graph, graph.input(image), "stem", 16, {3, 1, 1});
  int x = conv_norm_relu(graph, stem, "1.conv1", 8, {1, 1, 0});
  x = graph.batch_norm(graph.conv(x, "1.conv2", 16, {3, 1, 1}), "1.conv2.norm", true);
  const int block = graph.relu(graph.add(x, stem, "1.add"), "1.relu");
  const int64_t first = stride_in_first_conv ? 2 : 1;
  x = conv_norm_relu(graph, block, "2.conv1", 8, {1, first, 0});
  x = graph.batch_norm(graph.conv(x, "2.conv2", 24, {3, 2 / first, 1}), "2.conv2.norm", true);
  const int shortcut =
      graph.batch_norm(graph.conv(block, "2.projection", 24, {1, 2, 0}), "2.projection.norm");
  x = graph.relu(graph.add(x, shortcut, "2.add"), "2.relu");
  return classified(std::move(graph), x, 10);
}

Graph plain_graph(Shape image) {
  Graph graph("plain");
  int x = graph.conv(graph.input(image), "stem", 8, {3, 1, 1}, Bias::present);
  x = graph.max_pool(x, "pool1", {2, 2, 0});
  const int normal = graph.batch_norm(graph.conv(x, "conv", 8, {3, 1, 1}), "norm1");
  x = graph.add(graph.add(normal, graph.relu(x, "positive"), "add1"), x, "add2");
  x = graph.batch_norm(graph.relu(x, "mixed"), "norm2");
  x = graph.max_pool(x, "pool2", {3, 2, 1});
  x = graph.conv(x, "conv2", 16, {1, 1, 0}, Bias::present);
  x = graph.max_pool(graph.relu(x, "relu"), "pool3", {3, 1, 1});
  x = graph.linear(x, "hidden", 24);
  graph.softmax_cross_entropy(graph.linear(x, "fc", 10), "loss");
  return graph;
}

Graph small_vgg_graph(Shape image, bool with_norm) {
  Graph graph("small_vgg");
  int x = graph.input(image);
  for (const int64_t channels : {8, 16}) {
    for (const char* const part : {"a", "b"}) {
      const std::string name = std::to_string(channels) + part;
      x = graph.conv(x, name, channels, {3, 1, 1}, Bias::present);
      if (with_norm) x = graph.batch_norm(x, name + ".norm");
      x = graph.relu(x, name + ".relu");
    }
    x = graph.max_pool(x, "pool" + std::to_string(channels), {2, 2, 0});
  }
  x = graph.relu(graph.linear(x, "hidden", 40, Initialiser::he_normal), "hidden.relu");
  graph.softmax_cross_entropy(graph.linear(x, "fc", 10), "loss");
  return graph;
}

Graph small_vit_graph(Shape image, int64_t classes, int64_t multiple) {
  const VisionTransformer sizes{.patch = 3,
                                .layers = 2,
                                .heads = 3,
                                .features = 3 * rounded_up(5, multiple),
                                .mlp_features = rounded_up(29, multiple)};
  return vision_transformer("small_vit", sizes, image, classes);
}

Graph small_bert_graph(int64_t tokens, int64_t positions, int64_t multiple) {
  constexpr int64_t vocabulary = 13;  // so few that every step reads some rows twice, or none
  return bert_for_question_answering("small_bert",
                                     {.layers = 2,
                                      .heads = 3,
                                      .features = 3 * rounded_up(5, multiple),
                                      .mlp_features = rounded_up(29, multiple),
                                      .vocabulary = vocabulary,
                                      .positions = positions},
                                     tokens);
}

Graph classified_sequence_graph(int64_t tokens, int64_t multiple) {
  Graph graph("classified_sequence");
  int x = graph.token_ids(tokens, 7);
  x = graph.embedding(x, "embedding", rounded_up(10, multiple), {9, tokens, 1});
  x = graph.gelu(x, "gelu");
  x = graph.global_average_pool(x, "pool");
  graph.softmax_cross_entropy(graph.linear(x, "fc", 5), "loss");
  return graph;
}

Graph marked_image_graph(Shape image, int64_t multiple) {
  Graph graph("marked_image");
  const int64_t channels = rounded_up(12, multiple);
  const int x = graph.conv(graph.input(image), "stem", channels, {3, 2, 1}, Bias::present);
  graph.span_loss(graph.token_linear(graph.relu(x, "relu"), "ends", 2), "loss");
  return graph;
}

Graph plain_token_graph(Shape image, int64_t multiple) {
  Graph graph("plain_token");
  const int64_t features = rounded_up(7, multiple);
  const int conv = graph.conv(graph.input(image), "stem", rounded_up(12, multiple), {3, 2, 1});
  const int norm = graph.layer_norm(conv, "norm", 1e-12);
  int x = graph.add(norm, graph.gelu(conv, "gelu"), "add1");
  x = graph.relu(graph.token_linear(x, "wide", 3 * features), "relu");
  const int attended = graph.attention(x, "attention", 1);
  x = graph.token_linear(attended, "narrow", features);
  x = graph.add(x, attended, "add2");
  x = graph.positions(graph.class_token(x, "token1"), "positions");
  x = graph.class_token(x, "token2");
  x = graph.linear(
      graph.add(graph.select_token(x, "select"), graph.global_average_pool(x, "pool"), "add3"),
      "fc", 10);
  graph.softmax_cross_entropy(x, "loss");
  return graph;
}

Graph wide_token_graph(Shape image, int64_t multiple) {
  Graph graph("wide_token");
  const int64_t features = rounded_up(315, multiple);
  constexpr int64_t wide = 512;
  int x = graph.conv(graph.input(image), "stem", features, {3, 2, 1});
  const int norm = graph.layer_norm(x, "norm1", 1e-5);
  x = graph.gelu(graph.token_linear(norm, "widen", wide), "gelu");
  x = graph.add(graph.token_linear(x, "narrow", features), norm, "sum");
  x = graph.layer_norm(x, "norm2", 1e-5);
  x = graph.layer_norm(graph.token_linear(x, "widen_more", wide), "norm3", 1e-5);
  x = graph.global_average_pool(graph.token_linear(x, "last", wide), "pool");
  graph.softmax_cross_entropy(graph.linear(x, "fc", 10), "loss");
  return graph;
}

}  // namespace nearmetal
