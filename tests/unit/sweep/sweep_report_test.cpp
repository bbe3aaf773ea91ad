#include "bench/sweep/sweep_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bench/cli/defaults.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/sample_hosts.h"

namespace nearmetal {
namespace {

TEST(SweepReport, TellsTheWarningsOfItsRunsUnderTheTable) {
  Report report = sample_report();
  report.arms[0].runs[0].warnings = {{"drift", "step times changed by 7 %"}};
  std::ostringstream out;
  print_sweep(out, report);
  EXPECT_THAT(out.str(), testing::HasSubstr(report.arms[0].name +
                                            ": drift (1 run): step times changed by 7 %\n"));
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

}  // namespace
}  // namespace nearmetal
