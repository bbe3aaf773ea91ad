#include "bench/sweep/sweep_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

#include "bench/run/defaults.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/sample_hosts.h"
#include "tests/support/sample_report.h"

namespace nearmetal {
namespace {

TEST(SweepReport, ListsTheWarningsOfItsRunsUnderTheTable) {
  Report report = sample_report();
  report.arms[0].runs[0].warnings = {{"drift", "step times changed by 7 %"}};
  std::ostringstream out;
  print_sweep(out, report);
  EXPECT_THAT(out.str(), testing::HasSubstr(report.arms[0].name +
                                            ": drift (1 run): step times changed by 7 %\n"));
}

TEST(SweepReport, ArmsThatWereNotReachedAreOneLine) {
  std::ostringstream out;
  print_sweep(out, made_up_report({{"batch 2", {100}}, {"batch 4", {}}, {"batch 8", {}}}));
  EXPECT_THAT(out.str(), testing::Not(testing::HasSubstr("0 of 0")));
  EXPECT_THAT(out.str(), testing::HasSubstr("\n2 arms: no run yet\n"));
}

TEST(SweepReport, NamesWhatASpeedupIsAgainst) {
  Report report = made_up_report({{"one VM, one GPU", {98.7}}, {"two", {9.5}}, {"four", {18}}});
  for (Arm& arm : report.arms) arm.config = report.invocation.config;
  report.arms[0].config->model = "resnet18";
  for (size_t i = 1; i < 3; ++i) report.arms[i].runs[0].world_size = static_cast<int64_t>(2 * i);
  std::ostringstream out;
  print_sweep(out, report);
  EXPECT_THAT(out.str(), testing::ContainsRegex("two +2 +1 +9.500 +- +- +weak, 256 a rank  "
                                                "reference: 'one VM, one GPU' differs in model\n"));
  EXPECT_THAT(out.str(), testing::ContainsRegex("four .* 3.789 .*  two\n"));
  EXPECT_THAT(out.str(), testing::ContainsRegex("one VM, one GPU .* none has fewer ranks\n"));
}

TEST(SweepReport, OfALaunchKeepsItsExitCodeForTheJournal) {
  const Job job{{{"a", {0}, 0}}};
  LaunchPlan plan;
  plan.placements = {place(listed({job}), {host("a", 1)})};
  plan.workloads.resize(1);
  fill_defaults(plan.workloads[0].config, Device::cuda);
  plan.file.layouts.resize(1);
  const LaunchOutcome outcome{{}, ExitCode::timed_out, "no step"};
  const Report report = report_of_launch(plan, 0, outcome);
  EXPECT_EQ(report.exit_code, 7);
  EXPECT_EQ(report.status, Status::failed);
}

TEST(SweepReport, OfALaunchThatWasStoppedHasTheExitCodeOfItsSignal) {
  LaunchPlan plan;
  plan.placements = {place(listed({Job{{{"a", {0}, 0}}}}), {host("a", 1)})};
  plan.workloads.resize(1);
  fill_defaults(plan.workloads[0].config, Device::cuda);
  plan.file.layouts.resize(1);
  EXPECT_EQ(report_of_launch(plan, 0, {}, SIGINT).exit_code, 130);
  Report job = sample_report();
  job.arms.resize(1);
  EXPECT_EQ(report_of_launch(plan, 0, {.reports = {job}}, SIGINT).exit_code, 0) << "it was through";
  job.arms[0].runs[0].status = Status::partial;
  EXPECT_EQ(report_of_launch(plan, 0, {.reports = {job}}, SIGHUP).exit_code, 129);
  EXPECT_EQ(report_of_launch(plan, 0, {.reports = {job}}).exit_code, 143) << "by somebody else";
}

// A launch of two jobs with these reports.
Report report_of_two_jobs(const Report& first, const Report& second) {
  LaunchPlan plan;
  plan.placements = {place(listed({Job{{{"a", {0}, 0}}}, Job{{{"a", {1}, 0}}}}), {host("a", 2)})};
  plan.workloads.resize(1);
  fill_defaults(plan.workloads[0].config, Device::cuda);
  plan.file.layouts.resize(1);
  return report_of_launch(plan, 0, {.reports = {first, second}});
}

TEST(SweepReport, JobsThatNeverRanAtOnceHaveFailed) {
  Report first = sample_report();
  first.arms[0].runs[0].ranks[0].window_start_unix_seconds = 1000;
  EXPECT_EQ(report_of_two_jobs(first, first).status, Status::complete);
  Report second = first;
  second.arms[0].runs[0].ranks[0].window_start_unix_seconds = 1010;
  const Report report = report_of_two_jobs(first, second);
  EXPECT_EQ(report.status, Status::failed);
  EXPECT_EQ(report.exit_code, 6);
  EXPECT_THAT(*report.arms[0].runs[0].failure, testing::HasSubstr("never in their windows at the"));
}

TEST(SweepReport, RanksKeepTheirNumbersWhereAJobReportedSomeAlone) {
  Report told = sample_report();
  auto& run = told.arms[0].runs[0];
  run.world_size = 2;
  run.ranks.assign(2, sample_rank());
  run.ranks[1].rank = 1;
  Report ended = told;
  ended.arms[0].runs[0].ranks.resize(1);
  ended.arms[0].runs[0].status = Status::partial;
  std::vector<int64_t> numbers;
  const Report report = report_of_two_jobs(ended, told);
  for (const Rank& rank : report.arms[0].runs[0].ranks) numbers.push_back(rank.rank);
  EXPECT_THAT(numbers, testing::ElementsAre(0, 2, 3));
  EXPECT_EQ(report.arms[0].runs[0].world_size, 4);
}

TEST(SweepReport, RunsCarryTheBuildThatRanThem) {
  Report first = sample_report();
  first.arms[0].runs[0].ranks[0].window_start_unix_seconds = 1000;
  first.arms[0].runs[0].tool = first.tool;
  Report second = first;
  const auto has_warning = [](const Report& report) {
    return std::ranges::any_of(report.arms[0].runs[0].warnings, [](const Warning& warning) {
      return warning.code == "different_builds";
    });
  };
  EXPECT_EQ(report_of_two_jobs(first, second).arms[0].runs[0].tool, first.tool);
  EXPECT_FALSE(has_warning(report_of_two_jobs(first, second)));
  second.tool.git_commit = std::string(40, 'b');
  EXPECT_TRUE(has_warning(report_of_two_jobs(first, second)));
}

TEST(SweepReport, ARunThatChoseHowToSumTellsIt) {
  nearmetal::Run run = sample_report().arms[0].runs[0];
  run.throughput = 20388.0;
  run.communication.emplace();
  EXPECT_EQ(result_text(run), "throughput 20388 images/s");
  run.communication->tried_all_reduces = {{AllReduceKind::nccl, 0.0252},
                                          {AllReduceKind::host, 0.0247}};
  EXPECT_EQ(result_text(run),
            "throughput 20388 images/s (--all-reduce auto takes host memory: 24.70 ms instead of "
            "25.20 ms)");
}

TEST(SweepReport, OfALaunchTellsWhichRankWasInWhichEmulatedVm) {
  const Job job{{{"a", {0}, 0}, {"a", {1}, 0}}};
  LaunchPlan plan;
  plan.placements = {place(listed({job}, true), {host("a", 2)})};
  plan.workloads.resize(1);
  fill_defaults(plan.workloads[0].config, Device::cuda);
  plan.file.layouts.resize(1);
  Report of_job = sample_report();
  of_job.arms.resize(1);
  of_job.arms[0].runs[0].ranks.assign(2, sample_rank());
  of_job.arms[0].runs[0].ranks[1].rank = 1;
  const Report report = report_of_launch(plan, 0, {.reports = {of_job}});
  EXPECT_EQ(report.arms[0].runs[0].ranks.at(0).vm, 0);
  EXPECT_EQ(report.arms[0].runs[0].ranks.at(1).vm, 1);
}

}  // namespace
}  // namespace nearmetal
