#include <gmock/gmock.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/inference.h"
#include "models/networks/registry.h"
#include "models/pipeline_cuts.h"

namespace nearmetal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Graph bert(const std::string& name, int64_t tokens = 384) {
  return build_network(name, {.sequence = tokens});
}

// As files have them.
std::map<std::string, std::vector<int64_t>> dims_by_name(const Graph& graph) {
  std::map<std::string, std::vector<int64_t>> found;
  for (const Parameter& parameter : graph.parameters()) {
    if (parameter.parts.empty()) found[parameter.name] = parameter.dims;
    for (const std::string& part : parameter.parts) {
      found[part] = parameter.dims;
      found[part][0] /= std::ssize(parameter.parts);
    }
  }
  return found;
}

// The counts of BertForQuestionAnswering of transformers 4.38 with Google's published sizes.
TEST(Bert, ParameterCount) {
  EXPECT_EQ(bert("bert_base").parameter_count(), 108'893'186);
  EXPECT_EQ(bert("bert_large").parameter_count(), 334'094'338);
  EXPECT_EQ(bert("bert_base", 8).parameter_count(), 108'893'186) << "tables have all positions";
}

TEST(Bert, ParametersHaveTheNamesAndShapesOfHuggingFace) {
  auto dims = dims_by_name(bert("bert_base"));
  EXPECT_EQ(dims.size(), 5u + 12 * 16 + 2);
  EXPECT_THAT(dims["bert.embeddings.word_embeddings.weight"], ElementsAre(30522, 768));
  EXPECT_THAT(dims["bert.embeddings.position_embeddings.weight"], ElementsAre(512, 768));
  EXPECT_THAT(dims["bert.embeddings.token_type_embeddings.weight"], ElementsAre(2, 768));
  EXPECT_THAT(dims["bert.embeddings.LayerNorm.bias"], ElementsAre(768));
  const std::string layer = "bert.encoder.layer.11.";
  for (const char* part : {"query", "key", "value"}) {
    EXPECT_THAT(dims[layer + "attention.self." + part + ".weight"], ElementsAre(768, 768));
    EXPECT_THAT(dims[layer + "attention.self." + part + ".bias"], ElementsAre(768));
  }
  EXPECT_THAT(dims[layer + "attention.output.dense.weight"], ElementsAre(768, 768));
  EXPECT_THAT(dims[layer + "attention.output.LayerNorm.weight"], ElementsAre(768));
  EXPECT_THAT(dims[layer + "intermediate.dense.weight"], ElementsAre(3072, 768));
  EXPECT_THAT(dims[layer + "output.dense.weight"], ElementsAre(768, 3072));
  EXPECT_THAT(dims[layer + "output.LayerNorm.bias"], ElementsAre(768));
  EXPECT_THAT(dims["qa_outputs.weight"], ElementsAre(2, 768));
}

// 12 layers of 4 x 768^2 + 2 x 768 x 3072 weights and of two products of attention, and the head.
TEST(Bert, Flops) {
  const double weights = 12 * (4.0 * 768 * 768 + 2.0 * 768 * 3072) + 2 * 768;
  const double attention = 12 * 4.0 * 384 * 384 * 768;
  EXPECT_DOUBLE_EQ(bert("bert_base").forward_flops_per_sample(), 2 * weights * 384 + attention);
  EXPECT_NEAR(bert("bert_base").training_flops_per_sample(), 212.0e9, 0.05e9);
  EXPECT_NEAR(bert("bert_large").training_flops_per_sample(), 739.3e9, 0.05e9);
}

TEST(Bert, ReadsTokensAndAnswersWithTwoOfThem) {
  const Graph graph = bert("bert_tiny", 17);
  EXPECT_TRUE(graph.reads_tokens());
  EXPECT_EQ(graph.image(), (Shape{1, 17}));
  EXPECT_EQ(graph.classes(), 17);
  EXPECT_EQ(graph.labels_per_sample(), 2);
  EXPECT_EQ(graph.features(), 128);
  const Graph evaluated = inference_graph(graph);
  EXPECT_FALSE(evaluated.has_loss());
  EXPECT_EQ(evaluated.logits_per_sample(), 2 * 17);
  EXPECT_TRUE(evaluated.are_logits(static_cast<int>(evaluated.nodes().size()) - 1));
}

TEST(Bert, IsCutBetweenItsLayers) {
  const Graph graph = bert("bert_tiny");
  EXPECT_EQ(cut_names(graph, cut_points(graph)),
            "bert.embeddings,bert.encoder.layer.0.attention.output,bert.encoder.layer.0.output,"
            "bert.encoder.layer.1.attention.output,bert.encoder.layer.1.output");
  const PipelineStage last = make_stage(graph, named_cuts(graph, "bert.encoder.layer.0", 2), 1);
  EXPECT_EQ(last.graph.image(), (Shape{128, 384}));
  EXPECT_FALSE(last.graph.reads_tokens());
  EXPECT_THAT(last.graph.parameters()[0].parts[0], testing::StartsWith("bert.encoder.layer.1."));
}

TEST(Bert, RefusesWhatDoesNotFit) {
  EXPECT_THAT([] { bert("bert_tiny", 513); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("bert_tiny takes sequences of up to 512 tokens, not of 513")));
  EXPECT_THAT([] { bert("bert_tiny", 0); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("at least 1 token")));
  EXPECT_THAT(
      [] {
        bert_for_question_answering(
            "odd", {.layers = 1, .heads = 5, .features = 12, .mlp_features = 8}, 16);
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("12 features do not divide into 5 heads")));
}

}  // namespace
}  // namespace nearmetal
