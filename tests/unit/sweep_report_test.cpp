#include "bench/sweep_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/unit/sample_report.h"

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

}  // namespace
}  // namespace nearmetal
