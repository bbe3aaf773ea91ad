#include <chrono>
#include <cmath>
#include <thread>

#include "models/inference.h"
#include "models/networks/registry.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"

namespace nearmetal {

const char* const tested_backend = "cpu";

namespace {

TEST_F(ProgramTest, OddChannels) {
  const Graph graph = conv_graph({3, 2, 1}, {5, 11, 7}, 13, 3);
  ProgramOptions options;
  options.batch_size = 5;
  EXPECT_TRUE(check_against_reference(backend(), graph, options));
}

TEST_F(ProgramTest, AnyNumberOfThreadsComputesTheSame) {
  for (const int threads : {1, 2, 3}) {
    ProgramOptions options;
    options.batch_size = 3;
    options.threads = threads;
    for (const Graph& graph : {small_graph(), small_vit_graph({3, 9, 15})}) {
      EXPECT_TRUE(check_against_reference(backend(), graph, options)) << threads;
    }
  }
}

// Twice the same micro-batch: the mean is exact.
TEST_F(ProgramTest, MicroBatchesOfTokensHaveTheirMeanGradient) {
  const Graph graph = small_vit_graph({3, 9, 15});
  ProgramOptions options = with_batch(2);
  RandomCase random = random_case(graph, options.batch_size, 1);
  const auto gradients = [&] {
    const auto program = backend().prepare(graph, options);
    program->restart(random.parameters);
    program->use_batch(random.images, random.labels);
    step(*program);
    return program->gradients();
  };
  const std::vector<float> once = gradients();
  options.micro_batches = 2;
  random.images.insert(random.images.end(), random.images.begin(), random.images.end());
  random.labels.insert(random.labels.end(), random.labels.begin(), random.labels.end());
  EXPECT_EQ(gradients(), once);
}

TEST_F(ProgramTest, NanInAPatchReachesEveryLogitOfItsImage) {
  const Graph graph = inference_graph(small_vit_graph({3, 9, 15}, 10));
  ProgramOptions options = with_batch(2);
  options.forward_only = true;
  RandomCase random = random_case(graph, options.batch_size, 1);
  random.images.back() = std::nanf("");
  const auto program = backend().prepare(graph, options);
  program->restart(random.parameters);
  program->use_batch(random.images, random.labels);
  step(*program);
  const std::vector<float> logits = program->logits();
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_EQ(std::isnan(logits[i]), i >= 10) << i;
}

TEST_F(ProgramTest, TokensAreRefusedInBf16) {
  ProgramOptions options;
  options.precision = Precision::bf16;
  EXPECT_THROW(backend().prepare(small_vit_graph({3, 9, 15}), options), std::invalid_argument);
}

TEST_F(ProgramTest, AStepLastsFromTheEndOfTheOneBefore) {
  const auto program = backend().prepare(small_graph(), {});
  const auto seconds_after = [&](double pause) {
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    program->enqueue_step();
    return program->wait_step().seconds;
  };
  const std::vector<float> parameters = program->parameters();
  program->restart(parameters);
  constexpr double pause = 1;
  EXPECT_LT(seconds_after(pause), pause) << "before the work starts";
  EXPECT_GE(seconds_after(pause), pause);
}

TEST_F(ProgramTest, RefusesFp16) {
  ProgramOptions options;
  options.precision = Precision::fp16;
  EXPECT_THROW(backend().prepare(small_graph(), options), std::invalid_argument);
}

TEST_F(ProgramTest, Bf16IsRightOrRefused) {
  ProgramOptions options;
  options.batch_size = 8;
  options.precision = Precision::bf16;
  try {
    backend().prepare(small_graph(), options);
  } catch (const std::invalid_argument& refusal) {
    GTEST_SKIP() << refusal.what();
  }
  for (const int trained_steps : {0, 20}) {
    EXPECT_TRUE(check_against_reference(backend(), small_graph(), options, 1e-4, trained_steps));
  }
  for (const Graph& graph :
       {build_network("resnet20", {32, 10}), plain_graph({3, 13, 18}),
        small_vgg_graph({3, 13, 18}, false), small_vgg_graph({3, 13, 18}, true)}) {
    EXPECT_TRUE(check_against_reference(backend(), graph, options)) << graph.name();
  }
}

}  // namespace
}  // namespace nearmetal
