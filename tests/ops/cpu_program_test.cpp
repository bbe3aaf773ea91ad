#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "models/inference.h"
#include "models/networks/registry.h"
#include "models/synthetic.h"
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
    for (const Graph& graph : {small_graph(), small_vit_graph({3, 9, 15}), small_bert_graph(7)}) {
      EXPECT_TRUE(check_against_reference(backend(), graph, options)) << threads;
    }
  }
}

std::vector<float> gradients_of(Backend& backend, const Graph& graph, const ProgramOptions& options,
                                const RandomCase& random) {
  const auto program = backend.prepare(graph, options);
  program->restart(random.parameters);
  random.give_to(*program);
  step(*program);
  return program->gradients();
}

// The halves of a case, for two micro-batches.
std::pair<RandomCase, RandomCase> halves_of(const RandomCase& random) {
  RandomCase first = random, second = random;
  const auto cut = [&](auto RandomCase::*values) {
    const auto middle = static_cast<ptrdiff_t>((random.*values).size() / 2);
    (first.*values).erase((first.*values).begin() + middle, (first.*values).end());
    (second.*values).erase((second.*values).begin(), (second.*values).begin() + middle);
  };
  cut(&RandomCase::images);
  cut(&RandomCase::tokens);
  cut(&RandomCase::labels);
  return {first, second};
}

// The mean of two micro-batches is exact.
TEST_F(ProgramTest, MicroBatchesOfTokensHaveTheMeanOfTheirOwnGradients) {
  for (const Graph& graph : {small_vit_graph({3, 9, 15}), small_bert_graph(7)}) {
    ProgramOptions options = with_batch(3);
    options.micro_batches = 2;
    const RandomCase random = random_case(graph, options.step_images(), 1);
    const std::vector<float> together = gradients_of(backend(), graph, options, random);
    options.micro_batches = 1;
    const auto [first, second] = halves_of(random);
    std::vector<float> mean = gradients_of(backend(), graph, options, first);
    const std::vector<float> other = gradients_of(backend(), graph, options, second);
    EXPECT_NE(mean, other);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] = (mean[i] + other[i]) / 2;
    EXPECT_EQ(together, mean);
  }
}

TEST_F(ProgramTest, EveryStepDrawsOtherTokens) {
  const Graph graph = small_bert_graph(7);
  ProgramOptions options = with_batch(2);
  options.optimizer.learning_rate = 0;
  options.data_seed = 5;
  const auto program = started(backend(), graph, options);
  std::vector<float> drawn, given;
  for (int i = 0; i < 3; ++i) drawn.push_back(step(*program).loss);
  for (uint64_t i = 0; i < 3; ++i) {
    RandomCase random;
    for (uint64_t t = 0; t < 2 * 7; ++t) random.tokens.push_back(token_at(image_seed(5), i, t, 13));
    for (uint64_t l = 0; l < 2 * 2; ++l) random.labels.push_back(label_at(label_seed(5), i, l, 7));
    random.give_to(*program);
    given.push_back(step(*program).loss);
  }
  EXPECT_EQ(drawn, given);
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_NE(drawn[1], drawn[2]);
}

TEST_F(ProgramTest, EvaluationDrawsOtherTokensEveryStep) {
  ProgramOptions options = with_batch(2);
  options.forward_only = true;
  const auto program = started(backend(), inference_graph(small_bert_graph(7)), options);
  step(*program);
  const std::vector<float> first = program->logits();
  EXPECT_EQ(first.size(), 2u * 7 * 2);
  step(*program);
  EXPECT_NE(program->logits(), first);
}

TEST_F(ProgramTest, ImagesAndSequencesAreNotTakenForEachOther) {
  const auto of_images = started(backend(), small_graph(), with_batch(1));
  const auto of_tokens = started(backend(), small_bert_graph(7), with_batch(1));
  const std::vector<int32_t> tokens(7, 1), labels(2, 0);
  EXPECT_THROW(of_images->use_sequences(tokens, labels), std::logic_error);
  EXPECT_THROW(of_tokens->use_batch(std::vector<float>(7), labels), std::logic_error);
}

TEST_F(ProgramTest, NanInAPatchReachesEveryLogitOfItsImage) {
  const Graph graph = inference_graph(small_vit_graph({3, 9, 15}, 10));
  ProgramOptions options = with_batch(2);
  options.forward_only = true;
  RandomCase random = random_case(graph, options.batch_size, 1);
  random.images.back() = std::nanf("");
  const auto program = backend().prepare(graph, options);
  program->restart(random.parameters);
  random.give_to(*program);
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
  program->restart(program->parameters());
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
