#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(CompareSessions, FromFourSessionsOnTheIntervalTakesInHowTheyDiffer) {
  const ComparisonRow few = only_row(days(3, 1, 1000), days(1, 4, 980));
  EXPECT_EQ(few.method, Method::welch);
  EXPECT_EQ(few.base_side.sessions, 3);
  EXPECT_THAT(few.notes, has_code("few_sessions"));
  EXPECT_THAT(few.notes, Not(has_code("not_interleaved")));
  const ComparisonRow row = only_row(days(4, 1, 1000), days(1, 5, 980));
  EXPECT_EQ(row.method, Method::sessions);
  EXPECT_THAT(row.notes, Not(has_code("few_sessions")));
  EXPECT_NEAR(row.log_difference->degrees_of_freedom, 3, 0.2);
  EXPECT_EQ(row.verdict, Verdict::inconclusive) << "sessions differ by more than the drop";
  EXPECT_FALSE(row.rank_test_p);
  EXPECT_THAT(row.more_runs.reason, HasSubstr("more sessions may"));
  const RunSet base = days(4, 1, 1000), next = days(1, 5, 980);
  EXPECT_FALSE(holds_within_one_session(compare(base, next, {})));
  EXPECT_TRUE(holds_within_one_session(compare(days(3, 1, 1000), next, {})));
}

TEST(CompareSessions, SessionsOfBothSidesAreBlocks) {
  const ComparisonRow row = only_row(days(4, 1, 1000, 0.05), days(4, 1, 990, 0.0501));
  EXPECT_EQ(row.method, Method::sessions);
  EXPECT_EQ(row.verdict, Verdict::equivalent) << "sessions differ far more than the sides";
}

}  // namespace
}  // namespace nearmetal
