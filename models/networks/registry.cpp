#include "models/networks/registry.h"

#include <array>
#include <stdexcept>
#include <utility>

#include "base/text.h"

namespace nearmetal {
namespace {

// ResNet-18/34/50/101/152: "resnet50" is v1.5, "resnet50_v1" puts the stride of a bottleneck in its
// first 1x1 convolution as the paper did (He et al., 2015, arXiv 1512.03385). ResNet-18 and 34 have
// no bottleneck, so that their two versions are one. Names and counts of parameters are
// torchvision's. ResNet-20 is the paper's for images of 32 x 32 (its section 4.2), with
// projections.

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

Graph resnet(const Variant& variant, const NetworkOptions& options) {
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

Graph vgg(const std::string& name, bool with_norm, const NetworkOptions& options) {
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

// BERT (arXiv 1810.04805) that marks the answer to a question in its text, as it is fine-tuned on
// SQuAD. Names, counts and start of parameters are those of BertForQuestionAnswering of Hugging
// Face, but that the row of its padding, which no token is here, starts as the others; query, key
// and value are one product. Dropout has probability 0: it computes nothing.

constexpr std::pair<const char*, Bert> berts[] = {
    {"bert_base", {.layers = 12, .heads = 12, .features = 768, .mlp_features = 3072}},
    {"bert_large", {.layers = 24, .heads = 16, .features = 1024, .mlp_features = 4096}},
    {"bert_tiny", {.layers = 2, .heads = 2, .features = 128, .mlp_features = 512}},
};
constexpr int64_t token_types = 2;      // question and text; all tokens here are of the first
constexpr double bert_epsilon = 1e-12;  // of every layer norm
constexpr TokenLinearStart bert_start{.weight = Initialiser::normal_0_02};

int bert_layer(Graph& graph, int input, const std::string& name, const Bert& sizes) {
  const std::string attention = name + ".attention", self = attention + ".self";
  int x = graph.packed_linear(input, self + ".query_key_value", 3 * sizes.features,
                              {self + ".query", self + ".key", self + ".value"}, bert_start);
  x = graph.attention(x, self, sizes.heads);
  x = graph.token_linear(x, attention + ".output.dense", sizes.features, bert_start);
  x = graph.add(x, input, attention + ".output.add");
  const int attended = graph.layer_norm(x, attention + ".output.LayerNorm", bert_epsilon);
  x = graph.token_linear(attended, name + ".intermediate.dense", sizes.mlp_features, bert_start);
  x = graph.gelu(x, name + ".intermediate.gelu");
  x = graph.token_linear(x, name + ".output.dense", sizes.features, bert_start);
  x = graph.add(x, attended, name + ".output.add");
  return graph.layer_norm(x, name + ".output.LayerNorm", bert_epsilon);
}

// ViT-B/16 (arXiv 2010.11929). Names and counts of parameters are torchvision's, and so is how they
// start, but for the head: torchvision's is zero, which leaves the gradients of all other layers
// zero in the first step; here it starts as every classifier does. Dropout has probability 0: it
// computes nothing.

constexpr VisionTransformer base{
    .patch = 16, .layers = 12, .heads = 12, .features = 768, .mlp_features = 3072};
constexpr double vit_epsilon = 1e-6;  // of every layer norm
constexpr TokenLinearStart mlp_start{.bias = Initialiser::normal_1e_6};
constexpr TokenLinearStart output_start{.weight = Initialiser::uniform_fan_in_whole};

void require_whole_patches(const std::string& name, int64_t patch, const Shape& image) {
  for (const int64_t size : {image.height, image.width}) {
    if (size >= patch && size % patch == 0) continue;
    const std::string pixels = std::to_string(patch);
    throw std::invalid_argument(name + " cuts images into patches of " + pixels + " x " + pixels +
                                " pixels: an image size of " + std::to_string(size) +
                                " is no multiple of " + pixels);
  }
}

int encoder_layer(Graph& graph, int input, const std::string& name,
                  const VisionTransformer& sizes) {
  const std::string attention = name + ".self_attention";
  int x = graph.layer_norm(input, name + ".ln_1", vit_epsilon);
  x = graph.token_linear(x, attention + ".in_proj", 3 * sizes.features, {}, "_");
  x = graph.attention(x, attention, sizes.heads);
  x = graph.token_linear(x, attention + ".out_proj", sizes.features, output_start);
  const int attended = graph.add(x, input, name + ".add_1");
  x = graph.layer_norm(attended, name + ".ln_2", vit_epsilon);
  // "mlp.2" and "mlp.4" are dropout.
  x = graph.token_linear(x, name + ".mlp.0", sizes.mlp_features, mlp_start);
  x = graph.gelu(x, name + ".mlp.1");
  x = graph.token_linear(x, name + ".mlp.3", sizes.features, mlp_start);
  return graph.add(x, attended, name + ".add_2");
}

}  // namespace

const std::vector<Network>& networks() {
  using Options = const NetworkOptions&;
  static const std::vector<Network> all = [] {
    std::vector<Network> rows;
    for (const Variant& variant : variants) {
      rows.push_back({variant.name, SampleUnit::image, Optimizer::sgd,
                      [&variant](Options options) { return resnet(variant, options); }});
    }
    for (const bool with_norm : {false, true}) {
      const std::string name = with_norm ? "vgg16_bn" : "vgg16";
      rows.push_back({name, SampleUnit::image, Optimizer::sgd,
                      [=](Options options) { return vgg(name, with_norm, options); }});
    }
    rows.push_back({"vit_b_16", SampleUnit::image, Optimizer::adamw, [](Options options) {
                      return vision_transformer("vit_b_16", base,
                                                {3, options.image_size, options.image_size},
                                                options.classes);
                    }});
    for (const auto& bert : berts) {
      rows.push_back({bert.first, SampleUnit::sequence, Optimizer::adamw, [&bert](Options options) {
                        return bert_for_question_answering(bert.first, bert.second,
                                                           options.sequence);
                      }});
    }
    return rows;
  }();
  return all;
}

std::vector<std::string> network_names() { return transformed(networks(), &Network::name); }

const Network& find_network(const std::string& name) {
  const Network* found = find_in(networks(), name, &Network::name);
  if (found == nullptr) throw std::invalid_argument("unknown model '" + name + "'");
  return *found;
}

Graph build_network(const std::string& name, const NetworkOptions& options) {
  return find_network(name).build(options);
}

Graph bert_for_question_answering(const std::string& name, const Bert& sizes, int64_t tokens) {
  Graph graph(name);
  int x = graph.token_ids(tokens, sizes.vocabulary);
  x = graph.embedding(x, "bert.embeddings", sizes.features,
                      {sizes.vocabulary, sizes.positions, token_types});
  x = graph.layer_norm(x, "bert.embeddings.LayerNorm", bert_epsilon);
  for (int layer = 0; layer < sizes.layers; ++layer) {
    x = bert_layer(graph, x, "bert.encoder.layer." + std::to_string(layer), sizes);
  }
  constexpr int64_t start_and_end = 2;
  x = graph.token_linear(x, "qa_outputs", start_and_end, bert_start);
  graph.span_loss(x, "loss");
  return graph;
}

Graph vision_transformer(const std::string& name, const VisionTransformer& sizes, Shape image,
                         int64_t classes) {
  Graph graph(name);
  int x = graph.input(image);
  require_whole_patches(name, sizes.patch, image);
  x = graph.conv(x, "conv_proj", sizes.features, {sizes.patch, sizes.patch, 0}, Bias::present,
                 Initialiser::lecun_normal);
  x = graph.class_token(x, "class_token");
  x = graph.positions(x, "encoder.pos_embedding");
  for (int layer = 0; layer < sizes.layers; ++layer) {
    x = encoder_layer(graph, x, "encoder.layers.encoder_layer_" + std::to_string(layer), sizes);
  }
  x = graph.layer_norm(x, "encoder.ln", vit_epsilon);
  x = graph.select_token(x, "select_token");
  x = graph.linear(x, "heads.head", classes);
  graph.softmax_cross_entropy(x, "loss");
  return graph;
}

}  // namespace nearmetal
