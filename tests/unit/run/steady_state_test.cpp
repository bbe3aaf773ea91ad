#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bench/run/trainer.h"
#include "reports/statistics/inference.h"

namespace nearmetal {
namespace {

// A drift as large as the margin would pass for a difference.
static_assert(TrainerOptions{}.limit < DecisionRule{}.margin);

using Seconds = std::vector<double>;

// Steps taken until the window may start.
int64_t warm_up_steps(const TrainerOptions& rule, double (*step_seconds)(int64_t step),
                      bool* steady) {
  Seconds steps;
  while (true) {
    steps.push_back(step_seconds(static_cast<int64_t>(steps.size())));
    const WarmUp judged = judge_warm_up(steps, rule);
    if (!warm_up_is_over(steps, judged)) continue;
    *steady = judged.steady;
    return judged.steps;
  }
}

constexpr TrainerOptions cpu{.minimum_steps = 3, .maximum_steps = 30};
constexpr TrainerOptions gpu{.minimum_steps = 20, .maximum_steps = 200};

TEST(SteadyState, ConstantTimesEndAtTheMinimum) {
  bool steady = false;
  EXPECT_EQ(warm_up_steps(
                cpu, [](int64_t) { return 1.5; }, &steady),
            6)
      << "the fewest that are judged";
  EXPECT_TRUE(steady);
  EXPECT_EQ(warm_up_steps(
                gpu, [](int64_t) { return 0.025; }, &steady),
            20);
  EXPECT_TRUE(steady);
}

TEST(SteadyState, ASlowFirstStepDropsOut) {
  bool steady = false;
  const auto first_slow = [](int64_t step) { return step == 0 ? 4.0 : 1.5; };
  EXPECT_EQ(warm_up_steps(cpu, first_slow, &steady), 7);
  EXPECT_TRUE(steady);
}

TEST(SteadyState, ClocksThatSettleAreWaitedFor) {
  bool steady = false;
  const auto settling = [](int64_t step) {
    return 0.025 * (1 + 0.3 * std::exp(-static_cast<double>(step) / 20));
  };
  const int64_t steps = warm_up_steps(gpu, settling, &steady);
  EXPECT_TRUE(steady);
  EXPECT_GT(steps, 60);
  EXPECT_LT(steps, 200);
  EXPECT_LT(settling(steps) / 0.025, 1.02);
}

TEST(SteadyState, AJumpWithinTheJudgedStepsIsSeen) {
  Seconds steps(40, 1.0);
  for (size_t i = 30; i < steps.size(); ++i) steps[i] = 1.1;
  const WarmUp judged = judge_warm_up(steps, gpu);
  EXPECT_EQ(judged.judged_steps, 20);
  EXPECT_NEAR(*judged.halves_difference, 0.1 / 1.05, 1e-12);
  EXPECT_FALSE(judged.steady);
}

TEST(SteadyState, OneOutlierDoesNotCountAsAJump) {
  Seconds steps(40, 1.0);
  steps[30] = 1.2;  // in the middle: no trend either
  const WarmUp judged = judge_warm_up(steps, gpu);
  EXPECT_NEAR(*judged.halves_difference, 0, 1e-12);
  EXPECT_TRUE(judged.steady);
}

TEST(SteadyState, ATrendThatGoesOnEndsAtTheMaximumNotSteady) {
  bool steady = true;
  const auto growing = [](int64_t step) { return 1e-3 * std::pow(1.05, step); };
  EXPECT_EQ(warm_up_steps(cpu, growing, &steady), 30);
  EXPECT_FALSE(steady);
}

TEST(SteadyState, TheMaximumOfSecondsHoldsBeyondTheMinimum) {
  bool steady = true;
  const TrainerOptions rule{.minimum_steps = 4, .maximum_steps = 100, .maximum_seconds = 10};
  const auto slower_and_slower = [](int64_t step) { return 4.0 + static_cast<double>(step); };
  EXPECT_EQ(warm_up_steps(rule, slower_and_slower, &steady), 4);
  EXPECT_FALSE(steady);
}

TEST(SteadyState, FewStepsCannotBeJudged) {
  for (const size_t steps : {2, 3, 5}) {
    const WarmUp judged = judge_warm_up(Seconds(steps, 1), {.minimum_steps = 1});
    EXPECT_FALSE(judged.steady) << steps;
    EXPECT_FALSE(judged.drift) << "not known";
    EXPECT_EQ(judged.judged_steps, 0);
  }
  EXPECT_TRUE(judge_warm_up(Seconds(6, 1), {.minimum_steps = 1}).steady);
}

}  // namespace
}  // namespace nearmetal
