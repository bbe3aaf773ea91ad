// BERT (arXiv 1810.04805) that marks the answer to a question in its text, as it is fine-tuned on
// SQuAD. Names, counts and start of parameters are those of BertForQuestionAnswering of Hugging
// Face, but that the row of its padding, which no token is here, starts as the others; query, key
// and value are one product. Dropout has probability 0: it computes nothing.
#include "models/networks/transformers.h"

#include <stdexcept>
#include <utility>

#include "models/networks/registry.h"

namespace nearmetal {
namespace {

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

std::vector<Network> bert() {
  std::vector<Network> rows;
  for (const auto& bert : berts) {
    rows.push_back({bert.first, SampleUnit::sequence, Optimizer::adamw,
                    [&bert](const NetworkOptions& options) {
                      return bert_for_question_answering(bert.first, bert.second, options.sequence);
                    }});
  }
  return rows;
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

std::vector<Network> vit() {
  return {{"vit_b_16", SampleUnit::image, Optimizer::adamw, [](const NetworkOptions& options) {
             return vision_transformer(
                 "vit_b_16", base, {3, options.image_size, options.image_size}, options.classes);
           }}};
}

}  // namespace nearmetal
