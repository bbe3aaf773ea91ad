// Values that are not finite: seen in the record, never learned.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "models/graph.h"
#include "models/networks/registry.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"

namespace nearmetal {
namespace {

// Images of which one has a pixel that is not a number.
RandomCase case_with_nan(const Graph& graph) {
  RandomCase random = random_case(graph, batch_size, 1);
  random.images[random.images.size() / 2] = std::numeric_limits<float>::quiet_NaN();
  return random;
}

TEST_F(ProgramTest, NanInTheImagesIsSeenAndNotLearned) {
  const Graph graph = small_graph();
  const auto program = started(backend(), graph, with_batch());
  case_with_nan(graph).give_to(*program);
  const StepRecord record = step(*program);
  EXPECT_TRUE(std::isnan(record.loss)) << record.loss;
  EXPECT_FALSE(std::isfinite(record.gradient_norm)) << record.gradient_norm;
  EXPECT_TRUE(record.update_skipped);
  EXPECT_EQ(program->parameters(), initial_parameters(graph, 1));
  EXPECT_THAT(program->momentum(), testing::Each(0.0f));
}

// A ReLU or a pooling that takes the maximum with another value would hide it.
TEST_F(ProgramTest, NanInTheImagesIsSeenWithoutABackwardPass) {
  for (const Graph& graph : {small_graph(), small_vgg_graph({3, 12, 12}, false)}) {
    ProgramOptions options = with_batch();
    options.forward_only = true;
    const auto program = started(backend(), graph, options);
    case_with_nan(graph).give_to(*program);
    EXPECT_TRUE(std::isnan(step(*program).loss)) << graph.name();
  }
}

TEST_F(ProgramTest, NanInTheLogitsReachesTheLoss) {
  const Graph graph = small_graph();
  const auto program = backend().prepare(graph, with_batch());
  std::vector<float> parameters = initial_parameters(graph, 1);
  parameters.back() = std::numeric_limits<float>::quiet_NaN();  // of one class's bias
  program->restart(parameters);
  const StepRecord record = step(*program);
  EXPECT_TRUE(std::isnan(record.loss)) << record.loss;
  EXPECT_TRUE(record.update_skipped);
  std::vector<float> after = program->parameters();
  EXPECT_TRUE(std::isnan(after.back()));
  after.back() = parameters.back() = 0;
  EXPECT_EQ(after, parameters);
}

// The stem's weights are divided by 256, so that their gradient is 256 times as large and overflows
// at the largest scales.
TEST_F(ProgramTest, DynamicLossScaleHalvesUntilGradientsAreFinite) {
  const Graph graph = small_graph();
  RandomCase random = random_case(graph, batch_size, 1);
  for (int64_t i = 0; i < graph.parameters()[0].size; ++i) random.parameters[i] /= 256;
  const auto skipped_steps = [&](bool dynamic, int most) {
    ProgramOptions options = with_batch();
    options.loss_scale = {0x1p127, dynamic};
    const auto program = backend().prepare(graph, options);
    program->restart(random.parameters);
    random.give_to(*program);
    int skipped = 0;
    while (skipped < most && step(*program).update_skipped) ++skipped;
    return skipped;
  };
  const int skipped = skipped_steps(true, 128);
  EXPECT_GT(skipped, 1);
  EXPECT_LT(skipped, 128);
  EXPECT_EQ(skipped_steps(false, 10), 10);  // stays where it is
}

}  // namespace
}  // namespace nearmetal
