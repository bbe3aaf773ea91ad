// The fuzz target of command lines, as a test.
#include <gtest/gtest.h>

#include "tests/support/random_inputs.h"

namespace nearmetal {
namespace {

TEST(TfFlagsFuzz, MostCommandLinesGetPastTheirFirstFlag) {
  const Reach reach = reach_of_random_inputs(500);
  EXPECT_EQ(reach.inputs, 500);
  EXPECT_GT(reach.share_past_first(), 0.9);
  EXPECT_GT(reach.share_taken(), 0.1);
  EXPECT_LT(reach.share_taken(), 0.9);  // there are mistakes, too
}

TEST(TfFlagsFuzz, AWordThatOnlyEndsAsAFlagIsNone) {
  const std::string word = "-Xmodel";
  EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(word.data()), word.size()), 0);
}

}  // namespace
}  // namespace nearmetal
