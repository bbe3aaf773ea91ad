#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/sweep/run_layout.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

TEST(PartsProbe, HalvesThatAreKeptToAndRunAtOnceWillDo) {
  EXPECT_EQ(verdict_of_sms(2455, 1190, {1188, 1190}), std::nullopt);
}

TEST(PartsProbe, SaysWhatIsWrong) {
  EXPECT_THAT(*verdict_of_sms(2455, 2450, {1200, 1210}), HasSubstr("the limit has no effect"));
  EXPECT_THAT(*verdict_of_sms(2455, 1190, {590, 1100}),
              HasSubstr("one of two halves at once did 49.6 % of what it does alone"));
  EXPECT_THAT(*verdict_of_sms(2455, 1190, {}), HasSubstr("measured nothing"));
  EXPECT_THAT(*verdict_of_sms(0, 1190, {1190, 1190}), HasSubstr("measured nothing"));
}

}  // namespace
}  // namespace nearmetal
