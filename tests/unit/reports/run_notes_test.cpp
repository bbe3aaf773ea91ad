#include <gmock/gmock.h>
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

TEST_F(RunNotes, AQuantileOfFewStepsIsNotKnown) {
  const auto row_with = [&](const char* metric, int64_t steps) {
    options.metrics = {metric};
    for (RunSet* set : {&next, &base}) {
      for (SetRun& run : set->arms[0].runs) run.run.window.value->steps = steps;
    }
    return compare(base, next, options).rows.at(0);
  };
  const auto is_known = [&](const char* metric, int64_t steps) {
    return row_with(metric, steps).verdict != Verdict::not_comparable;
  };
  EXPECT_FALSE(is_known("p99_step_seconds", 99));
  EXPECT_TRUE(is_known("p99_step_seconds", 100));
  EXPECT_FALSE(is_known("p95_step_seconds", 19));
  EXPECT_TRUE(is_known("p95_step_seconds", 20));
  EXPECT_FALSE(is_known("jitter_seconds", 1));
  EXPECT_TRUE(is_known("median_step_seconds", 1));
  EXPECT_THAT(row_with("p99_step_seconds", 40).reason,
              testing::HasSubstr("its window has 40 steps, fewer than 100"));
  options.metrics = {all_of_runs};
  for (const ComparisonRow& row : compare(base, next, options).rows) {
    EXPECT_NE(row.metric, "p99_step_seconds") << "no verdict on the longest of 40 steps";
  }
}

TEST_F(RunNotes, TheSidesOfTwoSessionsAreNotInterleavedEither) {
  EXPECT_EQ(notes_of("not_interleaved"), 1);
  for (SetRun& run : next.arms[0].runs) run.session = "a VM";
  EXPECT_EQ(notes_of("few_sessions"), 1);
  EXPECT_EQ(notes_of("sessions_apart"), 1);
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
