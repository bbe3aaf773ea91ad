#include "models/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace nearmetal {
namespace {

constexpr int draws = 200'000;

TEST(Synthetic, MixedBitsIsSplitMix64) {
  // First outputs of the published generator from state 0.
  EXPECT_EQ(mixed_bits(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mixed_bits(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
}

TEST(Synthetic, NormalsHaveTheMomentsOfANormal) {
  double sum = 0, squares = 0, fourth = 0;
  int beyond_two = 0;
  for (int i = 0; i < draws; ++i) {
    const double value = normal_at(7, i);
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
    beyond_two += std::abs(value) > 2 ? 1 : 0;
  }
  // Within 5 standard errors of n independent draws.
  EXPECT_NEAR(sum / draws, 0, 5 / std::sqrt(draws));
  EXPECT_NEAR(squares / draws, 1, 5 * std::sqrt(2.0 / draws));
  EXPECT_NEAR(fourth / draws, 3, 5 * std::sqrt(96.0 / draws));
  const double tail = std::erfc(2 / std::sqrt(2.0));
  EXPECT_NEAR(static_cast<double>(beyond_two) / draws, tail, 5 * std::sqrt(tail / draws));
}

TEST(Synthetic, NeighboursAndStreamsAreNotCorrelated) {
  double neighbours = 0, streams = 0;
  for (int i = 0; i < draws; ++i) {
    neighbours += static_cast<double>(normal_at(7, i)) * normal_at(7, i + 1);
    streams += static_cast<double>(normal_at(7, i)) * normal_at(8, i);
  }
  EXPECT_NEAR(neighbours / draws, 0, 5 / std::sqrt(draws));
  EXPECT_NEAR(streams / draws, 0, 5 / std::sqrt(draws));
}

TEST(Synthetic, UniformsFillTheOpenInterval) {
  double sum = 0;
  for (int i = 0; i < draws; ++i) {
    const double value = uniform_at(3, i);
    ASSERT_GT(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_NEAR(sum / draws, 0.5, 5 / std::sqrt(12.0 * draws));
}

// Chi-square over 1000 classes: mean 999, variance 2 x 999.
TEST(Synthetic, LabelsAreUniform) {
  constexpr int64_t classes = 1000;
  std::vector<int> counts(classes);
  for (int i = 0; i < draws; ++i) {
    const int32_t label = label_at(5, i / 256, i % 256, classes);
    ASSERT_GE(label, 0);
    ASSERT_LT(label, classes);
    ++counts[label];
  }
  const double expected = static_cast<double>(draws) / classes;
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_NEAR(chi_square, classes - 1, 5 * std::sqrt(2.0 * (classes - 1)));
}

TEST(Synthetic, LabelsDifferBetweenStepsAndSeeds) {
  const auto labels = [](uint64_t seed, uint64_t step) {
    std::vector<int32_t> labels;
    for (int image = 0; image < 64; ++image) labels.push_back(label_at(seed, step, image, 1000));
    return labels;
  };
  std::set<std::vector<int32_t>> seen;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t step = 0; step < 10; ++step) seen.insert(labels(seed, step));
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(labels(3, 4), labels(3, 4));
}

TEST(Synthetic, TokensAreWordsAndNeverPadding) {
  std::set<int32_t> seen;
  for (uint64_t token = 0; token < 500; ++token) seen.insert(token_at(1, 0, token, 7));
  EXPECT_EQ(seen, (std::set<int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_NE(token_at(1, 0, 3, 30522), token_at(1, 1, 3, 30522)) << "of another step";
}

TEST(Synthetic, SeedsOfStreamsDiffer) {
  std::set<uint64_t> seeds;
  for (uint64_t data_seed = 0; data_seed < 100; ++data_seed) {
    seeds.insert(image_seed(data_seed));
    seeds.insert(label_seed(data_seed));
  }
  EXPECT_EQ(seeds.size(), 200u);
}

}  // namespace
}  // namespace nearmetal
