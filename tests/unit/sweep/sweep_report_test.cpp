#include "bench/sweep/sweep_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bench/cli/defaults.h"
#include "tests/support/sample_hosts.h"
#include "tests/support/sample_report.h"

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
