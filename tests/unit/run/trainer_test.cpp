#include "bench/run/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/fake_backend.h"

namespace nearmetal {
namespace {

struct TrainerTest : testing::Test {
  TrainerResult run() {
    FakeProgram program(script);
    return train(program, options, *make_consensus(*join_world(0), true), stop, progress);
  }

  Script script;
  TrainerOptions options{.minimum_steps = 5, .maximum_steps = 50, .window_steps = 20};
  std::atomic<int> stop = 0;
  TrainerProgress progress;
};

TEST(RecordedSteps, StayWhereMoreComeThanWereExpected) {
  RecordedSteps steps;
  steps.reserve(2);
  for (int i = 0; i < 20; ++i) steps.add({.seconds = 1, .loss = static_cast<float>(i)});
  const std::vector<StepRecord> copy = steps.copy();
  ASSERT_EQ(copy.size(), 20U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(copy[i].loss, static_cast<float>(i));
}

TEST_F(TrainerTest, TheWindowFollowsTheWarmUp) {
  script.step = [](int64_t step) {
    return StepRecord{.seconds = step < 2 ? 0.5 : 0.01, .loss = static_cast<float>(step)};
  };
  const TrainerResult result = run();
  EXPECT_TRUE(result.complete());
  ASSERT_TRUE(result.warm_up);
  EXPECT_TRUE(result.warm_up->steady);
  EXPECT_EQ(result.window_first_step, result.warm_up->steps);
  EXPECT_EQ(result.window_steps, 20);
  ASSERT_EQ(result.steps.size(), static_cast<size_t>(result.window_first_step + 20));
  for (size_t i = 0; i < result.steps.size(); ++i) {
    EXPECT_EQ(result.steps[i].loss, static_cast<float>(i)) << "steps in order, none left out";
  }
  EXPECT_EQ(progress.recorded.copy().size(), result.steps.size());
  EXPECT_EQ(progress.steps_done, static_cast<int64_t>(result.steps.size()));
  EXPECT_EQ(progress.window_first_step, result.window_first_step);
  EXPECT_NEAR(progress.window_seconds, 0.2, 1e-12);
}

TEST_F(TrainerTest, ADurationBecomesStepsByTheMedianWarmUpStep) {
  options.window_steps.reset();
  options.window_seconds = 1.0;
  script.step = [](int64_t step) {
    return StepRecord{.seconds = step == 0 ? 3.0 : 0.03, .loss = 1};
  };
  EXPECT_EQ(run().window_steps, 34);  // ceil(1 / 0.03)
}

TEST_F(TrainerTest, ADurationIsMetWhereStepsChange) {
  options.window_steps.reset();
  options.window_seconds = 3;
  for (const int in_flight : {1, 4}) {
    for (const double change : {0.5, 0.9, 1.6, 5.0}) {
      script.max_in_flight = in_flight;
      script.step = [&](int64_t step) {
        return StepRecord{.seconds = step < 20 ? 0.03 : 0.03 * change, .loss = 1};
      };
      const TrainerResult result = run();
      EXPECT_TRUE(result.complete());
      const double off = window_of(result, 1)->seconds - 3;
      EXPECT_NEAR(off, 0, in_flight * 0.03 * change + 1e-9) << change << ", " << in_flight;
    }
  }
}

TEST_F(TrainerTest, ADurationIsFilledUpToFourTimesTheFirstPlan) {
  options.window_steps.reset();
  options.window_seconds = 1;
  script.step = [](int64_t step) {
    return StepRecord{.seconds = step < 10 ? 0.1 : 0.001, .loss = 1};
  };
  EXPECT_EQ(run().window_steps, 40);
}

TEST_F(TrainerTest, AStepAsLongAsTheDurationIsTheLast) {
  options.window_steps.reset();
  options.window_seconds = 1;
  script.step = [](int64_t step) {
    return StepRecord{.seconds = step == 20 ? 5 : 0.01, .loss = 1};
  };
  const TrainerResult result = run();
  EXPECT_TRUE(result.complete());
  EXPECT_EQ(result.steps.size(), 21u);
}

TEST_F(TrainerTest, TheQueueIsKeptFullAndEndsEmpty) {
  script.max_in_flight = 4;
  const TrainerResult result = run();
  EXPECT_EQ(script.most_queued, 4);
  EXPECT_EQ(script.enqueued, script.waited);
  EXPECT_EQ(script.enqueued, static_cast<int64_t>(result.steps.size()));
}

TEST_F(TrainerTest, StepsQueuedBeyondAShortWindowAreLeftOut) {
  script.max_in_flight = 8;
  options.window_steps = 1;
  const TrainerResult result = run();
  EXPECT_EQ(result.steps.size(), static_cast<size_t>(result.window_first_step + 1));
  EXPECT_EQ(script.enqueued, script.waited);
}

TEST_F(TrainerTest, AStopKeepsWhatWasMeasured) {
  script.step = [this](int64_t step) {
    if (step == 11) stop = 2;
    return StepRecord{.seconds = 0.01, .loss = 1};
  };
  const TrainerResult result = run();
  EXPECT_TRUE(result.stopped);
  EXPECT_FALSE(result.complete());
  EXPECT_EQ(result.steps.size(), 12u);
  EXPECT_EQ(result.window_first_step, 6);
  EXPECT_EQ(script.enqueued, script.waited);
}

TEST_F(TrainerTest, AStopBeforeTheFirstStepLeavesNone) {
  stop = 15;
  const TrainerResult result = run();
  EXPECT_TRUE(result.stopped);
  EXPECT_TRUE(result.steps.empty());
  EXPECT_FALSE(result.warm_up);
}

TEST_F(TrainerTest, ALossThatIsNotFiniteEndsTheRun) {
  script.max_in_flight = 4;
  script.step = [](int64_t step) {
    const float bad = step % 2 == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
    return StepRecord{.seconds = 0.01, .loss = step < 9 ? 1.0f : bad};
  };
  const TrainerResult result = run();
  EXPECT_EQ(result.failed_step, 9);
  EXPECT_EQ(result.steps.size(), 9u);
  EXPECT_FALSE(result.complete());
  EXPECT_EQ(script.enqueued, script.waited);
}

TEST_F(TrainerTest, AnErrorOfTheDeviceKeepsWhatWasMeasured) {
  script.step = [](int64_t step) -> StepRecord {
    if (step == 8) throw std::runtime_error("the device fell off the bus");
    return {.seconds = 0.01, .loss = 1};
  };
  const TrainerResult result = run();
  EXPECT_EQ(result.failure, "the device fell off the bus");
  EXPECT_EQ(result.steps.size(), 8u);
}

TEST_F(TrainerTest, AClockThatStopsIsAnError) {
  script.step = [](int64_t) { return StepRecord{.seconds = 0, .loss = 1}; };
  EXPECT_THAT(*run().failure, testing::HasSubstr("no time"));
}

TEST_F(TrainerTest, UnsteadyStepsStillEndWarmUp) {
  script.step = [](int64_t step) {
    return StepRecord{.seconds = 0.001 * std::pow(1.1, step), .loss = 1};
  };
  const TrainerResult result = run();
  ASSERT_TRUE(result.warm_up);
  EXPECT_FALSE(result.warm_up->steady);
  EXPECT_EQ(result.window_first_step, 50);
}

}  // namespace
}  // namespace nearmetal
