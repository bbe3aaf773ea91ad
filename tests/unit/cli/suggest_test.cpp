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
  EXPECT_EQ(nearest_word("--batch_size", {"--batch", "--bucket-mib"}), "--batch");
  EXPECT_EQ(nearest_word("--runs", {"--ranks", "--repeats"}), "--repeats");
  EXPECT_EQ(nearest_word("--repeats", {"--runs"}), "--runs");
  EXPECT_EQ(nearest_word("--iterations", {"--duration", "--steps"}), "--steps");
  EXPECT_EQ(nearest_word("--cpu", {"--gpu", "--device"}), "--device");
  EXPECT_EQ(nearest_word("FP16", {"fp32", "bf16", "fp16"}), "fp16");
  EXPECT_EQ(nearest_word("thruput", {"throughput", "all"}), "throughput");
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
