#include <gtest/gtest.h>

#include <algorithm>

#include "reports/compare/compare.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

// Five runs a side, which differ by 0.3 %.
struct RunNotes : testing::Test {
  int64_t notes_of(const std::string& code) const {
    return std::ranges::count(compare(base, next, options).rows.at(0).notes, code, &Warning::code);
  }

  RunSet base = made_up_set({{"run", {1000, 1004, 996, 1002, 998}}});
  RunSet next = made_up_set({{"run", {1002, 1004, 996, 1000, 998}}}, 60);
  CompareOptions options;
};

TEST_F(RunNotes, AQuantileOfFewSteps) {
  const auto notes_with = [&](const char* metric, int64_t steps) {
    options.metrics = {metric};
    for (RunSet* set : {&next, &base}) {
      for (SetRun& run : set->arms[0].runs) run.run.window.value->steps = 1000;
    }
    next.arms[0].runs[2].run.window.value->steps = steps;
    return notes_of("few_steps");
  };
  EXPECT_EQ(notes_with("p99_step_seconds", 99), 1);
  EXPECT_EQ(notes_with("p99_step_seconds", 100), 0);
  EXPECT_EQ(notes_with("p95_step_seconds", 19), 1);
  EXPECT_EQ(notes_with("p95_step_seconds", 20), 0);
  EXPECT_EQ(notes_with("median_step_seconds", 2), 0);
}

TEST_F(RunNotes, NoiseWithinRunsThatHidesHowTheyDiffer) {
  const auto notes_with = [&](double error_of_a_run) {
    for (SetRun& run : next.arms[0].runs) {
      run.run.ranks[0].step_time.value->relative_standard_error = error_of_a_run;
    }
    return notes_of("short_runs");
  };
  EXPECT_EQ(notes_with(0.003), 1);
  EXPECT_EQ(notes_with(0.0005), 0);
}

}  // namespace
}  // namespace nearmetal
