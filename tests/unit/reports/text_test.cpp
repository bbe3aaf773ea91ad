#include "reports/text/text.h"

#include <gtest/gtest.h>

namespace nearmetal {
namespace {

TEST(Text, AFigureKeepsItsDigitsWhateverItsInterval) {
  EXPECT_EQ(with_interval(1412.6, {1406.2, 1420}), "1412.6 [1406.2, 1420.0]");
  EXPECT_EQ(with_interval(9472, {9116, 9841}), "9472 [9116, 9841]");
  EXPECT_EQ(with_interval(0.41, {0.006, 27.3}), "0.41 [0.01, 27.30]");
  EXPECT_EQ(with_interval(1.9, {0.1, 270}), "1.9 [0.1, 270.0]");
  EXPECT_EQ(with_interval(0, {-27, 27}), "0 [-27, 27]");
  EXPECT_EQ(signed_percent(-0.01642, {-0.0217, -0.011}), "-1.64 % [-2.17, -1.10]");
  EXPECT_EQ(signed_percent(0.00003, {0.00002, 0.00004}), "+0.0030 % [+0.0020, +0.0040]");
  EXPECT_EQ(signed_percent(3.1, {-0.9, 20}), "+310.00 % [-90.0, +2000.0]");
}

}  // namespace
}  // namespace nearmetal
