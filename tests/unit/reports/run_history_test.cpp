#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/formats/charts/throughput_charts.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;

// Two runs each on the first days of a month, of which the second has another driver.
RunSet two_days() {
  RunSet set;
  for (const int day : {1, 2}) {
    Report report = made_up_report({{"run", {1000. * day, 1010. * day}}});
    for (auto& run : report.arms[0].runs) run.started_at[9] = static_cast<char>('0' + day);
    report.tool.git_commit = std::string(40, static_cast<char>('a' + day));
    report.environments[0].gpus[0].driver_version = std::string(day == 1 ? "550.1" : "580.2");
    add_runs(set, report, "made up");
  }
  return set;
}

TEST(RunHistory, ListsRunsInTheOrderOfTheirStart) {
  RunSet set = made_up_set({{"run", {1003, 1001, 999.5}}, {"one", {5}}});
  std::swap(set.arms[0].runs[0], set.arms[0].runs[2]);
  EXPECT_THAT(run_order_table(set).rows,
              ElementsAre(ElementsAre("run", "3", "999.5", "1001", "1003", "1003 1001 999.5")));
  std::vector<double> many(30, 7);
  EXPECT_THAT(run_order_table(made_up_set({{"run", many}})).rows[0].back(),
              testing::EndsWith("7.000 and 6 more"));
}

TEST(RunHistory, TellsWhatChangedBetweenSessions) {
  const TextTable table = session_table(two_days());
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[0][1], testing::StartsWith("2026-01-31T"));
  EXPECT_EQ(table.rows[0][4], "bbbbbbbbbbbb");
  EXPECT_EQ(table.rows[0][5], "");
  EXPECT_THAT(table.rows[1][3], testing::StartsWith("2010 ["));
  EXPECT_THAT(table.rows[1][5], testing::HasSubstr("550.1 -> 580.2"));
  EXPECT_TRUE(session_table(made_up_set({{"run", {1, 2, 3}}})).rows.empty());
}

// Read by Apache Otava 0.8's importer of CSV: quoted names, and no cell without a number.
TEST(RunHistory, IsACsvOfSessionsThatHaveAllArms) {
  RunSet set = two_days();
  add_set(set, made_up_set({{"2 jobs", {500, 500}}}));
  std::ostringstream out;
  print_otava_csv(out, set);
  EXPECT_THAT(out.str(), testing::StartsWith("time,commit,\"run\",\"2 jobs\"\r\n2026-01-3"));
  EXPECT_EQ(std::ranges::count(out.str(), '\n'), 2) << "of the second day one arm has no run";
  EXPECT_THAT(out.str(), testing::HasSubstr("Z,bbbbbbbbbbbb,1004.98"));
}

TEST(RunHistory, HasALineForEachOfTwoSessionsThatBeganAtOnce) {
  RunSet set = made_up_set({{"run, 1=\"a\"", {1, 2}}});
  set.arms[0].runs[1].session = "another host";
  set.arms[0].runs[1].run.started_at = set.arms[0].runs[0].run.started_at;
  std::ostringstream out;
  print_otava_csv(out, set);
  EXPECT_THAT(out.str(), testing::StartsWith("time,commit,\"run, 1=\"\"a\"\"\"\r\n"));
  EXPECT_EQ(std::ranges::count(out.str(), '\n'), 3);
}

TEST(RunHistory, IsDrawnAgainstTheMedian) {
  const Chart chart = run_order_chart(shown_arms(made_up_set({{"run", {1000, 1010, 990}}})));
  EXPECT_THAT(csv_of(chart),
              testing::HasSubstr("\"run\",measured,point,2,1,,,\"2026-01-31T00:01:00Z\"\n"));
  EXPECT_EQ(chart.table.rows.size(), 1U);
  EXPECT_FALSE(run_order_chart(shown_arms(made_up_set({{"run", {1000}}}))).missing.empty());
}

}  // namespace
}  // namespace nearmetal
