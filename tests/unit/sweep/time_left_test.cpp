#include <gtest/gtest.h>

#include "base/text.h"
#include "comm/launch/launch_plan.h"

namespace nearmetal {
namespace {

TEST(TimeLeft, IsKnownOnceARunIsThrough) {
  TimeLeft left;
  left.begin_run(2);
  EXPECT_EQ(left.text(), "");
  left.end_run();
  left.begin_run(1);
  EXPECT_EQ(left.text(), ", about 0 s left");
}

TEST(TimeLeft, IsPrintedInWholeUnits) {
  EXPECT_EQ(duration_text(45.4), "45 s");
  EXPECT_EQ(duration_text(119), "119 s");
  EXPECT_EQ(duration_text(240), "4 min");
  EXPECT_EQ(duration_text(4800), "80 min");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
}

}  // namespace
}  // namespace nearmetal
