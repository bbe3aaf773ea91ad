// The judge judged: by hand, and by finite differences of its own loss.
#include "tests/ops/reference.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"
#include "tests/ops/reference_layers.h"
#include "tests/ops/reference_tokens.h"

namespace nearmetal {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

// Loss changes by gradient . step, up to step squared: along the gradient of every parameter and
// along every second component of it, so that a wrong, a missing and an extra component all show.
void expect_gradient_of_loss(const Graph& graph, int64_t batch_size) {
  ProgramOptions options;
  options.batch_size = batch_size;
  const RandomCase random = random_case(graph, batch_size, 3);
  const ReferenceStep step = reference_step(graph, random.inputs(options));
  for (const Parameter& parameter : graph.parameters()) {
    if (weight_of_cancelled_bias(graph, parameter) != nullptr) continue;
    for (const int64_t stride : {1, 2}) {
      double norm = 0;
      for (int64_t i = 0; i < parameter.size; ++i) {
        norm += std::pow(step.gradients[parameter.offset + i], 2);
      }
      RandomCase plus = random, minus = random;
      double predicted = 0;
      for (int64_t i = parameter.offset; i < parameter.offset + parameter.size; i += stride) {
        const double shift = 1e-4 * step.gradients[i] / std::sqrt(norm);
        plus.parameters[i] = static_cast<float>(plus.parameters[i] + shift);
        minus.parameters[i] = static_cast<float>(minus.parameters[i] - shift);
        // As rounded to fp32.
        predicted += step.gradients[i] * (static_cast<double>(plus.parameters[i]) -
                                          static_cast<double>(minus.parameters[i]));
      }
      const double change = reference_step(graph, plus.inputs(options)).loss -
                            reference_step(graph, minus.inputs(options)).loss;
      ASSERT_NE(predicted, 0) << parameter.name;
      EXPECT_NEAR(change / predicted, 1, 1e-3) << parameter.name;
    }
  }
}

TEST(Reference, GradientsAreThoseOfTheLoss) {
  expect_gradient_of_loss(small_graph(17, 5), 3);
  expect_gradient_of_loss(bottleneck_graph(9, 3), 3);
  expect_gradient_of_loss(conv_graph({3, 2, 2}, {2, 7, 5}, 6, 3), 4);
  expect_gradient_of_loss(plain_graph({3, 9, 7}), 3);
  expect_gradient_of_loss(small_vgg_graph({3, 9, 7}, false), 3);
  expect_gradient_of_loss(small_vgg_graph({3, 9, 7}, true), 3);
  expect_gradient_of_loss(small_vit_graph({2, 6, 9}, 4), 3);
  expect_gradient_of_loss(plain_token_graph({2, 5, 7}), 3);
  expect_gradient_of_loss(small_bert_graph(6), 3);
  expect_gradient_of_loss(classified_sequence_graph(5), 4);
  expect_gradient_of_loss(marked_image_graph({2, 5, 7}), 3);
}

TEST(Reference, UpdateIsSgdWithWeightDecay) {
  const Graph graph = small_graph(17, 5);
  ProgramOptions options;
  options.batch_size = 2;
  options.optimizer = {0.25, 0.9, 0.5};
  const RandomCase random = random_case(graph, 2, 1);
  const ReferenceStep step = reference_step(graph, random.inputs(options));
  double squares = 0;
  for (size_t i = 0; i < step.gradients.size(); ++i) {
    const double momentum = step.gradients[i] + 0.5 * random.parameters[i];
    ASSERT_DOUBLE_EQ(step.momentum[i], momentum);
    ASSERT_DOUBLE_EQ(step.parameters[i], random.parameters[i] - 0.25 * momentum);
    squares += step.gradients[i] * step.gradients[i];
  }
  EXPECT_NEAR(step.gradient_norm, std::sqrt(squares), 1e-12 * step.gradient_norm);
}

TEST(Reference, LossScaleCancels) {
  const Graph graph = small_graph(17, 5);
  ProgramOptions options;
  options.batch_size = 2;
  const RandomCase random = random_case(graph, 2, 1);
  const ReferenceStep plain = reference_step(graph, random.inputs(options));
  options.loss_scale.initial = 1024;
  EXPECT_TRUE(check_same_step(graph, reference_step(graph, random.inputs(options)), plain, 1e-12));
}

BatchTensor tensor(Shape shape, std::vector<double> values) {
  BatchTensor tensor(1, shape);
  tensor.values = std::move(values);
  return tensor;
}

TEST(ReferenceLayers, ConvolutionByHand) {
  const BatchTensor x = tensor({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  const std::vector<double> weight = {1, 0, 0, 0, 10, 0, 0, 0, 100};  // three taps on a diagonal
  EXPECT_THAT(convolution(x, weight, {1, 2, 3}, {3, 1, 1}).values,
              ElementsAre(10 + 500, 20 + 600, 30, 40, 50 + 1, 60 + 2));
  EXPECT_THAT(convolution(x, weight, {1, 1, 2}, {3, 2, 1}).values, ElementsAre(510, 30));
}

TEST(ReferenceLayers, PoolingGivesTheGradientToTheFirstMaximum) {
  const BatchTensor x = tensor({1, 2, 2}, {7, 7, 7, 1});
  EXPECT_THAT(max_pool(x, {1, 1, 1}, {2, 2, 0}).values, ElementsAre(7));
  EXPECT_THAT(max_pool_gradient(x, tensor({1, 1, 1}, {5}), {2, 2, 0}).values,
              ElementsAre(5, 0, 0, 0));
  EXPECT_THAT(max_pool(tensor({1, 1, 1}, {-3}), {1, 1, 1}, {3, 2, 1}).values, ElementsAre(-3));
}

TEST(ReferenceLayers, BatchNormOfTwoValues) {
  const BatchTensor x = tensor({1, 1, 2}, {1, 5});
  const double unit = 2 / std::sqrt(4 + batch_norm_epsilon);
  const std::vector<double> scale = {3}, bias = {0.5};
  const BatchTensor y = batch_norm(x, scale, bias);
  EXPECT_DOUBLE_EQ(y.values[0], 0.5 - 3 * unit);
  EXPECT_DOUBLE_EQ(y.values[1], 0.5 + 3 * unit);
}

TEST(ReferenceLayers, LayerNormOfTwoFeatures) {
  const BatchTensor x = tensor({2, 1, 2}, {1, -7, 5, -7});
  const double unit = 2 / std::sqrt(4 + 0.5);
  const BatchTensor y = layer_norm(x, std::vector<double>{3, 4}, std::vector<double>{0.5, 6}, 0.5);
  EXPECT_DOUBLE_EQ(y.values[0], 0.5 - 3 * unit);
  EXPECT_DOUBLE_EQ(y.values[2], 6 + 4 * unit);
  EXPECT_DOUBLE_EQ(y.values[1], 0.5) << "both features of the second token are the same";
  EXPECT_DOUBLE_EQ(y.values[3], 6);
}

TEST(ReferenceLayers, GeluOfTabulatedValues) {
  const BatchTensor y = gelu(tensor({3}, {0, 1, -2}));
  EXPECT_EQ(y.values[0], 0);
  EXPECT_NEAR(y.values[1], 0.8413447461, 1e-9);  // the normal distribution function of 1
  EXPECT_NEAR(y.values[2], -2 * 0.0227501319, 1e-9);
}

// The first of two heads with one feature each sees two equal keys, the second one far above the
// other.
TEST(ReferenceLayers, AttentionOfTwoTokens) {
  const BatchTensor packed = tensor({6, 2, 1}, {1, 2, 1, 1,    // q of each head, by token
                                                3, 3, 0, 50,   // k
                                                4, 8, 4, 8});  // v
  EXPECT_THAT(attention(packed, 2).values,
              ElementsAre(DoubleEq(6), DoubleEq(6), DoubleEq(8), DoubleEq(8)));
  const double weight = 1 / (1 + std::exp(-(3 * 2 + 50 - 3) / std::sqrt(2)));
  EXPECT_NEAR(attention(packed, 1).values[1], 4 + 4 * weight, 1e-12) << "one head of two features";
}

// The input is one sample with two tokens.
TEST(ReferenceLayers, EmbeddingAddsWordPlaceAndFirstType) {
  const std::vector<int32_t> ids = {2, 0};
  const std::vector<double> words = {1, 2, 3}, positions = {10, 20, 30}, types = {100, 200};
  EXPECT_THAT(embedding(token_ids(ids, 1), {1, 2}, words, positions, types).values,
              ElementsAre(113, 121));
}

TEST(ReferenceLayers, SpanLossIsTheMeanOfStartAndEnd) {
  const BatchTensor logits = tensor({2, 4, 1}, {7, 7, 7, 7,              // start
                                                0, 0, std::log(3), 0});  // end
  const std::vector<int32_t> labels = {1, 2};
  EXPECT_NEAR(span_loss(logits, labels), (std::log(4.0) + std::log(2.0)) / 2, 1e-12);
  const BatchTensor gradient = span_loss_gradient(logits, labels);
  EXPECT_NEAR(gradient.plane(0)[1], -0.75 / 2, 1e-12);
  EXPECT_NEAR(gradient.plane(1)[2], -0.5 / 2, 1e-12);
}

TEST(ReferenceLayers, CrossEntropyOfEqualLogits) {
  const std::vector<int32_t> labels = {2};
  const BatchTensor logits = tensor({4}, {1e4, 1e4, 1e4, 1e4});
  EXPECT_NEAR(softmax_cross_entropy(logits, labels), std::log(4.0), 1e-12);
  const BatchTensor gradient = softmax_cross_entropy_gradient(logits, labels);
  EXPECT_NEAR(gradient.values[0], 0.25, 1e-9);
  EXPECT_NEAR(gradient.values[2], -0.75, 1e-9);
}

TEST(Rounded, ToNearestTiesToEven) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(rounded(1 + 0x1p-11, Precision::fp16), 1);
  EXPECT_EQ(rounded(1 + 0x1.8p-11, Precision::fp16), 1 + 0x1p-10);
  EXPECT_EQ(rounded(1 + 0x3p-11, Precision::fp16), 1 + 0x1p-9);
  EXPECT_EQ(rounded(-(1 + 0x3p-11), Precision::fp16), -(1 + 0x1p-9));
  EXPECT_EQ(rounded(65519, Precision::fp16), 65504);
  EXPECT_EQ(rounded(65520, Precision::fp16), infinity);
  EXPECT_EQ(rounded(-65520, Precision::fp16), -infinity);
  EXPECT_EQ(rounded(0x1p-24, Precision::fp16), 0x1p-24);
  EXPECT_EQ(rounded(0x1p-25, Precision::fp16), 0);
  EXPECT_EQ(rounded(0x1.8p-25, Precision::fp16), 0x1p-24);
  EXPECT_EQ(rounded(1 + 0x1p-8, Precision::bf16), 1);
  EXPECT_EQ(rounded(1 + 0x3p-8, Precision::bf16), 1 + 0x1p-6);
  EXPECT_EQ(rounded(1e30, Precision::bf16), std::round(1e30 * 0x1p-92) * 0x1p92);
  EXPECT_EQ(rounded(1 + 0x1p-11, Precision::tf32), 1);
  EXPECT_EQ(rounded(1e30, Precision::tf32), std::round(1e30 * 0x1p-89) * 0x1p89);
  EXPECT_EQ(rounded(0.1, Precision::fp32), static_cast<double>(0.1f));
  EXPECT_TRUE(std::isnan(rounded(std::nan(""), Precision::fp16)));
}

TEST(Rounded, EmulatedErrorGrowsWithTheUnitRoundoff) {
  const Graph graph = small_graph(17, 5);
  ProgramOptions options;
  options.batch_size = 8;
  const RandomCase random = random_case(graph, 8, 1);
  const ReferenceStep exact = reference_step(graph, random.inputs(options));
  const auto error = [&](Precision precision) {
    ReferenceInputs inputs = random.inputs(options);
    inputs.rounding = precision;
    const ReferenceStep emulated = reference_step(graph, inputs);
    double difference = 0;
    for (size_t i = 0; i < exact.gradients.size(); ++i) {
      difference += std::pow(emulated.gradients[i] - exact.gradients[i], 2);
    }
    return std::sqrt(difference) / exact.gradient_norm;
  };
  const double fp32 = error(Precision::fp32), tf32 = error(Precision::tf32),
               bf16 = error(Precision::bf16);
  EXPECT_GT(fp32, 0x1p-26);
  EXPECT_LT(fp32, 1e-5);
  EXPECT_GT(tf32, 0x1p-13);
  EXPECT_LT(tf32, 0.1);
  EXPECT_GT(bf16, 2 * tf32);
}

// Momentum of 1 and a gradient of about -0.9 leave 1/24.
TEST(CheckUpdate, AllowsTheRoundingOfTermsThatCancelAndNoMore) {
  const Graph graph = small_graph();
  OptimizerOptions options;
  options.weight_decay = 0;
  const auto count = static_cast<size_t>(graph.parameter_count());
  ReferenceStep before;
  before.parameters.assign(count, 0.5);
  before.momentum.assign(count, 1);
  ReferenceStep after = before;
  after.gradients.assign(count, 1.0 / 24 - options.momentum);
  after.gradient_norm = std::sqrt(static_cast<double>(count)) * std::abs(after.gradients[0]);
  update_parameters(graph, options, 2, after);
  ASSERT_NEAR(after.momentum[0], 1.0 / 24, 1e-9);
  const auto passes_with = [&](double error) {
    ReferenceStep wrong = after;
    for (double& value : wrong.momentum) value += error;
    return static_cast<bool>(check_update(graph, options, 2, before, wrong));
  };
  EXPECT_TRUE(passes_with(0));
  EXPECT_TRUE(passes_with(0x1p-24));
  EXPECT_FALSE(passes_with(2e-6));
}

}  // namespace

const char* const tested_backend = "";  // none: graphs alone are shared

}  // namespace nearmetal
