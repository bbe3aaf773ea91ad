#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reports/compare/compare.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

const std::vector<double> runs_of_a_day = {1000, 1004, 996, 1002, 998};

// Five runs a day, from the given one on; each day is faster than the one before by `step`.
RunSet days(int count, int first_day, double level, double step = 0.01) {
  RunSet set;
  for (int day = 0; day < count; ++day) {
    std::vector<double> runs;
    for (const double run : runs_of_a_day) runs.push_back(level * (1 + step * day) * run / 1000);
    Report report = made_up_report({{"run", runs}});
    for (auto& run : report.arms[0].runs) {
      run.started_at[9] = static_cast<char>('0' + first_day + day);
    }
    add_runs(set, report, "made up");
  }
  return set;
}

ComparisonRow only_row(const RunSet& base, const RunSet& next) {
  return compare(base, next, {}).rows.at(0);
}

auto has_code(const std::string& code) { return Contains(Field(&Warning::code, code)); }

TEST(CompareSessions, FromTwoSessionsOnTheIntervalTakesInHowTheyDiffer) {
  const ComparisonRow one = only_row(days(1, 1, 1000), days(1, 4, 980));
  EXPECT_EQ(one.method, Method::welch);
  EXPECT_THAT(one.notes, has_code("few_sessions"));
  EXPECT_THAT(one.notes, Not(has_code("not_interleaved")));
  const ComparisonRow few = only_row(days(3, 1, 1000), days(1, 4, 980));
  EXPECT_EQ(few.method, Method::sessions);
  EXPECT_EQ(few.base_side.sessions, 3);
  EXPECT_NEAR(few.log_difference->degrees_of_freedom, 2, 0.2);
  EXPECT_THAT(few.notes, has_code("few_sessions"));
  const ComparisonRow row = only_row(days(4, 1, 1000), days(1, 5, 980));
  EXPECT_EQ(row.method, Method::sessions);
  EXPECT_THAT(row.notes, Not(has_code("few_sessions")));
  EXPECT_NEAR(row.log_difference->degrees_of_freedom, 3, 0.2);
  EXPECT_EQ(row.verdict, Verdict::inconclusive) << "sessions differ by more than the drop";
  EXPECT_FALSE(row.rank_test_p);
  EXPECT_THAT(row.notes, Not(has_code("few_runs"))) << "there is no rank test";
  EXPECT_THAT(row.more_runs.reason, HasSubstr("more sessions may"));
  EXPECT_GT(row.more_sessions.value.value_or(0), 1);
  const RunSet next = days(1, 5, 980);
  EXPECT_FALSE(holds_within_one_session(compare(days(2, 1, 1000), next, {})));
  EXPECT_TRUE(holds_within_one_session(compare(days(1, 1, 1000), next, {})));
}

// The mean of a session is the unit, also of a side by itself.
TEST(CompareSessions, ASideOfSeveralHasTheIntervalOfTheirMeans) {
  const ComparisonRow row = only_row(days(3, 1, 1000), days(3, 5, 1000));
  EXPECT_NEAR(*row.base_side.geometric_mean, std::cbrt(1000. * 1010 * 1020), 0.1);
  EXPECT_NEAR(row.base_side.interval->lower, 985.17, 0.5);
}

// What a night does to all layouts is one thing, and no three.
TEST(CompareSessions, TheMeanOfRowsIsAsUncertainAsTheirSessions) {
  const auto layouts = [](int first_day, double level) {
    RunSet set;
    for (int day = 0; day < 3; ++day) {
      std::vector<double> runs;
      for (const double run : runs_of_a_day) runs.push_back(level * (1 + .01 * day) * run / 1000);
      Report report = made_up_report({{"a", runs}, {"b", runs}, {"c", runs}});
      for (auto& arm : report.arms) {
        for (auto& run : arm.runs) run.started_at[9] = static_cast<char>('0' + first_day + day);
      }
      add_runs(set, report, "made up");
    }
    return set;
  };
  const Comparison comparison = compare(layouts(1, 1000), layouts(5, 990), {});
  ASSERT_EQ(comparison.geometric_means.size(), 1u);
  const LogEstimate& mean = *comparison.geometric_means[0].log_difference;
  const LogEstimate& row = *comparison.rows[0].log_difference;
  EXPECT_NEAR(mean.standard_error, row.standard_error, 1e-12);
  EXPECT_NEAR(mean.degrees_of_freedom, 4, 1e-9);
}

TEST(CompareSessions, SessionsOfBothSidesAreBlocks) {
  const ComparisonRow row = only_row(days(4, 1, 1000, 0.05), days(4, 1, 990, 0.0501));
  EXPECT_EQ(row.method, Method::sessions);
  EXPECT_EQ(row.verdict, Verdict::equivalent) << "sessions differ far more than the sides";
}

}  // namespace
}  // namespace nearmetal
