// AdamW against its formula in double precision; every test of the reference has SGD.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "models/graph.h"
#include "models/program.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"

namespace nearmetal {
namespace {

class Adamw : public ProgramTest {
 protected:
  Adamw() {
    options_.optimizer = {.learning_rate = 0.01, .weight_decay = 0.1, .kind = Optimizer::adamw};
  }

  std::unique_ptr<Program> prepared() {
    auto program = backend().prepare(graph_, options_);
    random_ = random_case(graph_, options_.step_images(), 1);
    program->restart(random_.parameters);
    random_.give_to(*program);
    return program;
  }

  ReferenceStep start() const {
    ReferenceStep start;
    start.parameters.assign(random_.parameters.begin(), random_.parameters.end());
    return start;
  }

  void expect_updates(int count) {
    const auto program = prepared();
    ReferenceStep before = start();
    for (int update = 1; update <= count; ++update) {
      const ReferenceStep after = run_step(*program);
      ASSERT_TRUE(check_update(graph_, options_.optimizer, update, before, after));
      before = after;
    }
  }

  Graph graph_ = small_graph();
  ProgramOptions options_ = with_batch();
  RandomCase random_;
};

TEST_F(Adamw, TakesTheStepsOfItsFormula) { expect_updates(8); }

TEST_F(Adamw, TakesTheMeanOfMicroBatches) {
  options_.micro_batches = 3;
  expect_updates(3);
}

TEST_F(Adamw, ScalesTheLossAway) {
  options_.loss_scale.initial = 1024;
  expect_updates(3);
}

// The moments of a step that is skipped, and the count of updates, stay as they were.
TEST_F(Adamw, SkippedUpdatesDoNotCount) {
  const auto program = prepared();
  const ReferenceStep first = run_step(*program);
  std::vector<float> images = random_.images;
  images[images.size() / 2] = std::numeric_limits<float>::quiet_NaN();
  program->use_batch(images, random_.labels);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(step(*program).update_skipped);
  random_.give_to(*program);
  EXPECT_TRUE(check_update(graph_, options_.optimizer, 2, first, run_step(*program)));
}

TEST_F(Adamw, RestartForgetsMomentsAndCount) {
  const auto program = prepared();
  for (int i = 0; i < 3; ++i) step(*program);
  program->restart(random_.parameters);
  EXPECT_THAT(program->second_moments(), testing::Each(0.0f));
  EXPECT_TRUE(check_update(graph_, options_.optimizer, 1, start(), run_step(*program)));
}

TEST_F(Adamw, Memorises) {
  options_.optimizer.weight_decay = 0.01;
  const auto program = prepared();
  const float first = step(*program).loss;
  float last = first;
  for (int i = 1; i < 60; ++i) last = step(*program).loss;
  EXPECT_GT(first, 0.5 * std::log(10.0));
  EXPECT_LT(last, 0.5 * std::log(10.0));
}

TEST_F(Adamw, NeedsMemoryForTheSecondMoments) {
  const int64_t adamw = backend().bytes_needed(graph_, options_);
  const int64_t largest = backend().largest_batch(graph_, options_);
  EXPECT_EQ(std::ssize(prepared()->second_moments()), graph_.parameter_count());
  options_.optimizer.kind = Optimizer::sgd;
  EXPECT_GE(adamw - backend().bytes_needed(graph_, options_), 4 * graph_.parameter_count());
  EXPECT_LE(largest, backend().largest_batch(graph_, options_));
  EXPECT_THAT(prepared()->second_moments(), testing::IsEmpty());
}

}  // namespace
}  // namespace nearmetal
