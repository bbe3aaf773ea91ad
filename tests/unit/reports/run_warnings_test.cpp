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
  interrupted.key = {};  // no job had told its environment
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
  const auto warn = [&](size_t arm, size_t run, double share, std::optional<int64_t> job = {},
                        std::optional<int64_t> rank = {}) {
    Warning warning{.code = "drift",
                    .text = "it drifted by " + std::to_string(share),
                    .figure = Figure{share, 0.02, FigureUnit::share},
                    .job = job,
                    .rank = rank};
    if (rank) warning.host = "b";
    set.arms[arm].runs[run].run.warnings.push_back(warning);
  };
  warn(0, 0, 0.045);
  warn(0, 1, 0.032, 0);
  warn(1, 1, 0.091, 1, 2);
  warn(1, 1, 0.05, 1, 3);
  EXPECT_THAT(run_warnings(set),
              testing::ElementsAre("2 arms: drift (3 runs, 3.20 to 9.10 %): it drifted by "
                                   "0.091000; worst: 1x2, run 2, job 2, rank 2 (b)"));
  RunSet one_arm = set;
  one_arm.arms.erase(one_arm.arms.begin() + 1, one_arm.arms.end());
  EXPECT_THAT(run_warnings(one_arm),
              testing::ElementsAre("1x1: drift (2 runs, 3.20 to 4.50 %): it drifted by 0.045000; "
                                   "worst: run 1"));
  set.arms[1].runs[1].source = "other.json";
  EXPECT_THAT(run_warnings(set)[0], testing::EndsWith("worst: 1x2, run 2 (other.json), job 2, rank "
                                                      "2 (b)"));
}

TEST(RunWarnings, TheWorseIsQuotedWhereSentencesAreUnlike) {
  RunSet set = made_up_set({{"run", {1000, 1010}}});
  const auto shared = [](const std::string& text, const Figure& figure) {
    return Warning{.code = "monitor_shared", .text = text, .figure = figure};
  };
  set.arms[0].runs[0].run.warnings = {
      shared("other processes kept 1.74 CPUs busy", {1.74, 0.5, FigureUnit::cpus})};
  set.arms[0].runs[1].run.warnings = {shared("steal of 39.1 %; other processes kept 1.99 CPUs busy",
                                             {0.391, 0.01, FigureUnit::share})};
  EXPECT_THAT(run_warnings(set),
              testing::ElementsAre("run: monitor_shared (2 runs, quoting the worst): steal of "
                                   "39.1 %; other processes kept 1.99 CPUs busy; worst: run 2"));
  set.arms[0].runs[0].run.warnings[0].figure.reset();
  EXPECT_THAT(run_warnings(set), testing::ElementsAre(HasSubstr("steal of 39.1 %")))
      << "what has no figure is not worse";
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
