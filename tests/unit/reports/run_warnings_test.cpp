// Lines below the tables of a report: what its means are of, and what its runs warned of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/formats/headline.h"
#include "reports/formats/report_text.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(RunWarnings, NamesAnArmWhoseRunsDidDifferentWork) {
  RunSet set = made_up_set({{"run", {1000, 1010, 990}}, {"other", {1000, 1010}}});
  EXPECT_THAT(run_warnings(set), testing::IsEmpty());
  Report larger = made_up_report({{"run", {2000, 2010}}});
  larger.invocation.config.batch = 777;
  add_runs(set, larger, "larger");
  EXPECT_THAT(run_warnings(set), testing::ElementsAre(testing::AllOf(
                                     testing::StartsWith("run: its runs did different work"),
                                     testing::HasSubstr("batch"), testing::HasSubstr("777"))));
}

TEST(RunWarnings, AMeanOfDifferentWorkIsNoHeadline) {
  RunSet set = made_up_set({{"run", {1000, 1010, 990}}});
  EXPECT_THAT(headlines(set), testing::ElementsAre(HasSubstr("images/s in 3 runs")));
  Report larger = made_up_report({{"run", {2000, 2010}}});
  larger.invocation.config.batch = 777;
  add_runs(set, larger, "larger");
  EXPECT_THAT(headlines(set), testing::IsEmpty());
}

TEST(RunWarnings, ComparesTheWorkOfCompleteRunsAlone) {
  RunSet set = made_up_set({{"run", {1000, 1010, 990}}});
  SetRun& interrupted = set.arms[0].runs[0];
  interrupted.run.status = Status::partial;
  interrupted.key.clear();  // no job had told its environment
  EXPECT_THAT(run_warnings(set), testing::ElementsAre(HasSubstr("left out: partial")));
}

TEST(RunWarnings, SaysThatAMeanOrASpeedupIsOverSeveralBuilds) {
  RunSet set = made_up_set({{"run", {1000, 1010, 990}}, {"other", {1000, 1010}}});
  Tool& first = set.arms[0].runs[0].tool;
  first.build_id = std::string(64, '1');
  EXPECT_THAT(run_warnings(set),
              testing::ElementsAre(testing::StartsWith(
                  "run: runs of several builds of nearmetal in one mean (" + first.version)));
  set.arms[0].runs[0].run.status = Status::failed;
  EXPECT_THAT(run_warnings(set), Not(testing::Contains(HasSubstr("builds")))) << "in no mean";
  Report report = made_up_report({{"1x1", {1000, 1010}}, {"1x2", {1900, 1910}}});
  for (nearmetal::Run& run : report.arms[1].runs) {
    run.world_size = 2;
    run.tool = report.tool;
    run.tool->build_id = std::string(64, '1');
  }
  RunSet scaled;
  add_runs(scaled, report, "made up");
  EXPECT_THAT(run_warnings(scaled),
              testing::ElementsAre(testing::StartsWith(
                  "1x2: speedup against 1x1, which ran another build of nearmetal (")));
}

TEST(RunWarnings, AWarningOfSeveralJobsIsOfOneRun) {
  RunSet set = made_up_set({{"run", {1000, 1010}}});
  for (SetRun& run : set.arms[0].runs) run.run.warnings = {{"drift", "up"}, {"drift", "down"}};
  EXPECT_THAT(run_warnings(set),
              testing::ElementsAre("run: drift (2 runs, quoting the first): up"));
}

TEST(RunWarnings, AKindOfWarningIsOneLineWithItsRangeAndItsWorst) {
  RunSet set = made_up_set({{"1x1", {1000, 1010}}, {"1x2", {2000, 2010}}, {"1x4", {4000}}});
  const auto warn = [&](size_t arm, size_t run, const std::string& text) {
    set.arms[arm].runs[run].run.warnings.push_back({"drift", text});
  };
  warn(0, 0, "step times changed by 4.5 %");
  warn(0, 1, "job 0: step times changed by 3.2 %");
  warn(1, 1, "job 1: rank 2 (b): step times changed by 9.1 %");
  warn(1, 1, "job 1: rank 3 (b): step times changed by 5.0 %");
  EXPECT_THAT(run_warnings(set),
              testing::ElementsAre("2 arms: drift (3 runs): step times changed by 3.2 to 9.1 %; "
                                   "worst: 1x2, run 2, job 1, rank 2 (b)"));
  RunSet one_arm = set;
  one_arm.arms.erase(one_arm.arms.begin() + 1, one_arm.arms.end());
  EXPECT_THAT(run_warnings(one_arm),
              testing::ElementsAre("1x1: drift (2 runs): step times changed by 3.2 to 4.5 %; "
                                   "worst: run 1"));
  set.arms[1].runs[1].source = "other.json";
  EXPECT_THAT(run_warnings(set)[0], testing::EndsWith("worst: 1x2, run 2 (other.json), job 1, rank "
                                                      "2 (b)"));
}

TEST(RunWarnings, SaysThatAMeanIsOverSeveralMachines) {
  RunSet set = made_up_set({{"run", {1000, 1010}}});
  EXPECT_THAT(run_warnings(set), testing::IsEmpty());
  Report other = made_up_report({{"run", {500, 510}}}, 60);
  other.environments[0].host_name = "vm";
  add_runs(set, other, "other");
  EXPECT_THAT(run_warnings(set),
              testing::ElementsAre("run: runs of several machines in one mean (host, vm); `report "
                                   "NAME=FILE...` holds machines apart"));
}

}  // namespace
}  // namespace nearmetal
