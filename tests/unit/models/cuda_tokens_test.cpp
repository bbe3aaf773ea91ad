// Steps of transformers, planned without a GPU.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "models/cuda/kernels/layer_norm.h"
#include "models/inference.h"
#include "models/networks/registry.h"
#include "tests/ops/graphs.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CudaTokens, SaysWhichTokensItCannotCompute) {
  const auto refusal = [](const Graph& graph) -> std::string {
    try {
      lowered(graph, options_of(Precision::fp16), {});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(small_vit_graph({3, 9, 9})), HasSubstr("are not a multiple of 8"));
  const auto attended = [](int64_t features, int64_t heads) {
    Graph graph("attended");
    int x = graph.conv(graph.input({3, 4, 4}), "stem", 8, {1, 1, 0});
    x = graph.token_linear(graph.layer_norm(x, "norm", 1e-5), "in", 3 * features);
    x = graph.layer_norm(graph.attention(x, "attention", heads), "wide", 1e-5);
    graph.softmax_cross_entropy(graph.linear(graph.select_token(x, "first"), "fc", 10), "loss");
    return graph;
  };
  EXPECT_EQ(refusal(attended(2048, 16)), "");
  EXPECT_THAT(refusal(attended(40, 10)),
              HasSubstr("attention: the features of a head are not a multiple of 8"));
  EXPECT_THAT(refusal(attended(2056, 1)), HasSubstr("wide: it has more than 2048 features"));
}

// Biases, sums of residual branches and GELU have no sweep of their own but one.
TEST(CudaTokens, ProductsOfTokensAddBiasesAndResiduals) {
  const Graph graph = build_network("vit_b_16", {32, 10});
  const LoweredStep step = lowered(graph, options_of(Precision::bf16), {});
  const std::string layer = "encoder.layers.encoder_layer_3.";
  const auto runs = [&](Phase phase, const std::string& name) {
    return std::ranges::count_if(step.kernels, [&](const Kernel& kernel) {
      return kernel.phase == phase && kernel.name == layer + name;
    });
  };
  EXPECT_EQ(runs(Phase::forward, "mlp.3 + " + layer + "add_2"), 1);
  EXPECT_EQ(runs(Phase::forward, "add_2"), 0);
  EXPECT_EQ(runs(Phase::forward, "mlp.0.bias + " + layer + "mlp.1"), 1);
  EXPECT_EQ(runs(Phase::backward, "mlp.0.bias + " + layer + "mlp.1"), 1);
  EXPECT_EQ(runs(Phase::forward, "self_attention.in_proj_bias"), 0);
  EXPECT_EQ(runs(Phase::backward, "self_attention.in_proj_bias"), 1);
  // Layer norms add what the residual branch has left.
  EXPECT_EQ(runs(Phase::backward, "add_1 gradients"), 0);
  EXPECT_EQ(runs(Phase::backward, "ln_2 + " + layer + "self_attention.out_proj.bias"), 1);
}

// ... which is also the gradient of the linear layer before them, of whose bias it is the sum.
TEST(CudaTokens, LayerNormsSumTheGradientsOfBiasesBeforeThem) {
  const auto names = [](const Graph& graph, Kernels kernels) {
    ProgramOptions options = options_of(Precision::bf16);
    options.kernels = kernels;
    std::multiset<std::string> names;
    for (const Kernel& kernel : lowered(graph, options, {}).kernels) {
      if (kernel.phase == Phase::backward) names.insert(kernel.name);
    }
    return names;
  };
  const auto graph = [](bool sum_is_read_before) {
    Graph graph("biased");
    const int stem = graph.conv(graph.input({3, 4, 4}), "stem", 16, {1, 1, 0});
    int x = graph.token_linear(stem, "first", 16);
    const int sum = graph.add(x, stem, "sum");
    const int before = sum_is_read_before ? graph.gelu(sum, "before") : -1;
    const int norm = graph.layer_norm(sum, "norm1", 1e-5);
    x = sum_is_read_before ? graph.add(norm, before, "both") : norm;
    x = graph.layer_norm(graph.token_linear(x, "second", 16), "norm2", 1e-5);
    graph.softmax_cross_entropy(graph.linear(graph.global_average_pool(x, "pool"), "fc", 8),
                                "loss");
    return graph;
  };
  const auto fused = names(graph(false), Kernels::fastest);
  EXPECT_EQ(fused.count("norm1 + first.bias"), 1u);
  EXPECT_EQ(fused.count("norm2 + second.bias"), 1u);
  EXPECT_EQ(fused.count("first.bias") + fused.count("second.bias"), 0u);
  // GELU's gradient of the sum comes after that of the layer norm.
  const auto apart = names(graph(true), Kernels::fastest);
  EXPECT_EQ(apart.count("norm1"), 1u);
  EXPECT_EQ(apart.count("first.bias"), 1u);
  EXPECT_EQ(apart.count("norm2 + second.bias"), 1u);
  const auto wide = names(wide_token_graph({3, 5, 7}, 8), Kernels::fastest);
  EXPECT_EQ(wide.count("norm1"), 1u);
  EXPECT_EQ(wide.count("norm2 + narrow.bias"), 1u);
  EXPECT_EQ(wide.count("norm3 + widen_more.bias"), 1u);
  EXPECT_EQ(wide.count("layer norms"), 1u);  // their sums
  const auto cudnn = names(graph(false), Kernels::cudnn);
  EXPECT_EQ(cudnn.count("norm1"), 1u);
  EXPECT_EQ(cudnn.count("first.bias"), 1u);
}

// The readers of a layer norm of BERT, a linear layer and a residual branch, each leave a gradient.
TEST(CudaTokens, LayerNormsAddTheGradientsOfTheirReaders) {
  const Graph graph = build_network("bert_tiny", {.sequence = 24});
  const LoweredStep step = lowered(graph, options_of(Precision::bf16), {});
  const std::string norm = "bert.encoder.layer.0.output.LayerNorm";
  EXPECT_FALSE(std::ranges::any_of(
      step.kernels, [](const Kernel& kernel) { return kernel.name.ends_with("gradients"); }));
  const double value_bytes = 4 * 24 * 128 * 2;
  const Kernel& backward = kernel_of(
      step, Phase::backward, norm + " + bert.encoder.layer.0.output.dense.bias", "own sweep");
  const auto sums = static_cast<double>(layer_norm_sums_bytes(
      Precision::bf16, {4 * 24, 128}, true, StepResources().reduction.multiprocessors));
  EXPECT_EQ(sums, 3 * 128 * 4);
  EXPECT_EQ(backward.bytes, 4 * value_bytes + 4 * 24 * 8 + sums);  // x, both, dx, and statistics
  // The sums of all five, of which the first has no bias before it.
  EXPECT_EQ(kernel_of(step, Phase::backward, "layer norms", "own sums").bytes, 5 * sums - 128 * 4);
}

// Four layers, each forward, for its weights and for its input, of whatever many encoder layers.
TEST(CudaTokens, ProductsOfTokensAreChosenOnceForAllLayers) {
  const Graph graph = build_network("vit_b_16");
  const LoweredStep step = lowered(graph, options_of(Precision::bf16), {});
  std::set<std::string> keys;
  for (const LinearProblem& problem : distinct_products(step)) keys.insert(problem.key());
  EXPECT_EQ(keys.size(), 3u * 4);
  EXPECT_THAT(keys, Contains("product forward bf16 788x3072 w768 bias residual"));
  EXPECT_THAT(keys, Contains("product forward bf16 788x768 w3072"));  // a sweep adds the bias
  EXPECT_THAT(keys, Contains("product weight_gradient bf16 788x768 w2304"));
  // The classifier's is the first that cuBLASLt names.
  EXPECT_TRUE(
      distinct_products(lowered(build_network("vgg16", {64, 10}), options_of(Precision::bf16), {}))
          .empty());
}

TEST(CudaTokens, SumsOfLayerNormsAreCompleteBeforeThoseOfMicroBatches) {
  ProgramOptions options = options_of(Precision::bf16);
  options.micro_batches = 2;
  std::vector<std::string> sums;
  for (const Kernel& kernel :
       lowered(build_network("bert_tiny", {.sequence = 24}), options, {}).kernels) {
    if (kernel.name == "layer norms" || kernel.name.ends_with("micro-batches")) {
      sums.push_back(kernel.name);
    }
  }
  EXPECT_THAT(sums, ElementsAre("layer norms", "sum of micro-batches", "layer norms",
                                "mean of 2 micro-batches"));
}

TEST(CudaTokens, BlocksOfLayerNormsAreAsManyAsTheirTokensFill) {
  const auto blocks = [](Precision precision, int64_t rows, int channels) {
    return layer_norm_backward_blocks(precision, {rows, channels}, 132);
  };
  EXPECT_EQ(blocks(Precision::bf16, 12288, 768), 132);
  EXPECT_EQ(blocks(Precision::bf16, 1, 768), 1);
  EXPECT_EQ(blocks(Precision::bf16, 11, 768), 2);  // five groups of three warps, two tokens each
  EXPECT_EQ(blocks(Precision::fp32, 9, 1024), 3);  // two groups of eight
  // No more groups than barriers; rounded up to 32 channels.
  EXPECT_EQ(blocks(Precision::bf16, 31, 8), 2);
  EXPECT_EQ(layer_norm_sums_bytes(Precision::bf16, {31, 40}, false, 132), 2 * 2 * 64 * 4);
}

// cuDNN's kernels keep a number for each row of scores, products all of them.
TEST(CudaTokens, AttentionWithoutScoresTakesLessMemory) {
  const Graph graph = build_network("vit_b_16");
  const ProgramOptions options = options_of(Precision::bf16);
  const LoweredStep products = lowered(graph, options, {});
  const LoweredStep fused = lowered(graph, options, with_fused_attention(graph, options));
  EXPECT_DOUBLE_EQ(flops(fused), flops(products));
  const int64_t scores = int64_t{12} * 4 * 12 * 197 * 200 * 2;  // kept by 12 layers
  EXPECT_GT(products.memory.total_bytes - fused.memory.total_bytes, scores / 10 * 9);
}

TEST(CudaTokens, AttentionIsChosenOnceForAllLayers) {
  const Graph graph = build_network("vit_b_16");
  ProgramOptions options = options_of(Precision::bf16);
  std::vector<std::string> keys;
  for (const AttentionProblem& problem : distinct_attention(graph, options)) {
    keys.push_back(problem.key());
  }
  EXPECT_THAT(keys, ElementsAre("attention forward bf16 4x197x768 heads 12",
                                "attention backward bf16 4x197x768 heads 12"));
  options.forward_only = true;
  EXPECT_EQ(distinct_attention(graph, options).size(), 1u);
  EXPECT_TRUE(distinct_attention(graph, options_of(Precision::tf32)).empty());
}

TEST(CudaTokens, FusedAttentionLeavesLogSumsForItsGradient) {
  const Graph graph = build_network("bert_tiny", {.sequence = 24});
  ProgramOptions options = options_of(Precision::bf16);
  const std::string name = "bert.encoder.layer.0.attention.self";
  const LoweredStep step = lowered(graph, options, with_fused_attention(graph, options));
  const Kernel& forward = kernel_of(step, Phase::forward, name);
  const Kernel& backward = kernel_of(step, Phase::backward, name);
  ASSERT_TRUE(forward.attention && backward.attention);
  EXPECT_EQ(forward.bound->tensor(Role::statistics), backward.bound->tensor(Role::statistics));
  EXPECT_EQ(forward.bound->tensor(Role::statistics)->bytes, 4 * 2 * 24 * 4);
  // Inference, too: cuDNN's forward pass always leaves them.
  options.forward_only = true;
  const Graph inference = inference_graph(graph);
  const LoweredStep evaluated =
      lowered(inference, options, with_fused_attention(inference, options));
  EXPECT_EQ(kernel_of(evaluated, Phase::forward, name).bound->tensor(Role::statistics)->bytes,
            4 * 2 * 24 * 4);
}

class CudaTransformer : public ::testing::TestWithParam<std::tuple<const char*, Kernels>> {};

TEST_P(CudaTransformer, EveryMatrixGetsItsGradientOnce) {
  const auto [network, kernels] = GetParam();
  NetworkOptions sizes;
  sizes.image_size = 32;
  sizes.classes = 10;
  sizes.sequence = 24;
  const Graph graph = build_network(network, sizes);
  ProgramOptions options = options_of(Precision::fp16);
  options.kernels = kernels;
  const LoweredStep step = lowered(graph, options, {});
  std::map<int, int> found;
  for (const Kernel& kernel : step.kernels) {
    if (kernel.gradient_of) ++found[*kernel.gradient_of];
  }
  for (int p = 0; p < static_cast<int>(graph.parameters().size()); ++p) {
    const bool is_matrix = graph.parameters()[p].dims.size() > 1;
    EXPECT_EQ(found[p], is_matrix ? 1 : 0) << graph.parameters()[p].name;
  }
  EXPECT_DOUBLE_EQ(flops(step), 4 * graph.training_flops_per_sample());
}

INSTANTIATE_TEST_SUITE_P(Of, CudaTransformer,
                         ::testing::Combine(::testing::Values("vit_b_16", "bert_tiny"),
                                            ::testing::Values(Kernels::fastest, Kernels::cudnn)));

TEST(CudaTokens, SequencesAreDrawnOnTheDeviceAlone) {
  const Graph graph = build_network("bert_tiny", {.sequence = 24});
  ProgramOptions options = options_of(Precision::bf16);
  const LoweredStep step = lowered(graph, options, {});
  EXPECT_EQ(step.images, nullptr);
  EXPECT_EQ(step.kernels.front().name, "tokens");
  options.input = Input::pinned;
  EXPECT_THROW(lowered(graph, options, {}), std::invalid_argument);
}

// Their logits, and the gradient of these, have a row of 8 for each token.
TEST(CudaTokens, SpansHaveRowsOfLogitsForTokens) {
  const Graph graph = inference_graph(build_network("bert_tiny", {.sequence = 24}));
  ProgramOptions options = options_of(Precision::bf16);
  options.forward_only = true;
  const LoweredStep step = lowered(graph, options, {});
  ASSERT_NE(step.logits, nullptr);
  EXPECT_EQ(step.logits->bytes, 4 * 24 * 8 * 4);
}

}  // namespace
}  // namespace nearmetal::cuda
