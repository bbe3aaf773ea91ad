// BERT (arXiv 1810.04805) that marks the answer to a question in its text, as it is fine-tuned on
// SQuAD. Names, counts and start of parameters are those of BertForQuestionAnswering of Hugging
// Face, but that the row of its padding, which no token is here, starts as the others; query, key
// and value are one product. Dropout has probability 0: it computes nothing.
#include "models/networks/bert.h"

#include "models/networks/registry.h"

namespace nearmetal {
namespace {

struct NamedBert {
  const char* name;
  Bert sizes;
};

constexpr NamedBert berts[] = {
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
  for (const NamedBert& bert : berts) {
    rows.push_back(
        {bert.name, SampleUnit::sequence, Optimizer::adamw, [&bert](const NetworkOptions& options) {
           return bert_for_question_answering(bert.name, bert.sizes, options.sequence);
         }});
  }
  return rows;
}

}  // namespace nearmetal
