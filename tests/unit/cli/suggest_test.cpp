#include <gtest/gtest.h>

#include "bench/cli/parse_value.h"

namespace nearmetal {
namespace {

TEST(Suggest, FindsTheNearestWord) {
  const std::vector<std::string> known = {"--batch", "--classes", "--steps", "--seed"};
  EXPECT_EQ(nearest_word("--bacth", known), "--batch");
  EXPECT_EQ(nearest_word("--step", known), "--steps");
  EXPECT_EQ(nearest_word("--sed", known), "--seed");
  EXPECT_EQ(nearest_word("--batch", known), "--batch");
}

TEST(Suggest, KnowsWhatOthersCallIt) {
  EXPECT_EQ(nearest_word("gpu", {"cpu", "cuda"}), "cuda");
  EXPECT_EQ(nearest_word("bs", {"batch", "seed"}), "batch");
  EXPECT_EQ(nearest_word("bs", {"seed"}), "");
}

TEST(Suggest, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(nearest_word("--frobnicate", {"--batch"}), "");
  EXPECT_EQ(nearest_word("x", {"run"}), "");
  EXPECT_EQ(nearest_word("run", {}), "");
  EXPECT_EQ(nearest_word(std::string(100000, 'a'), {"run"}), "");
  EXPECT_EQ(did_you_mean("x", {"run"}), "");
  EXPECT_EQ(did_you_mean("rnu", {"run"}), "; did you mean 'run'?");
}

}  // namespace
}  // namespace nearmetal
