#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/names.h"
#include "comm/known_values.h"
#include "models/program.h"
#include "models/sixteen_bits.h"

namespace nearmetal {
namespace {

template <class T>
std::vector<float> values_of(const std::string& bytes) {
  std::vector<float> values;
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    values.push_back(to_float(*reinterpret_cast<const T*>(bytes.data() + i)));
  }
  return values;
}

// In the order of the ranks and against it, rounded after each addition.
template <class T>
void expect_exact_sums(Precision type, int ranks) {
  const GradientBucket bucket{nullptr, 3000, type};
  const std::vector<float> wanted = values_of<T>(known_sums(bucket, ranks));
  ASSERT_EQ(wanted.size(), 3000U);
  std::vector<float> up(wanted.size()), down(wanted.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const auto first = values_of<T>(known_values(bucket, rank, ranks));
    const auto last = values_of<T>(known_values(bucket, ranks - 1 - rank, ranks));
    for (size_t i = 0; i < wanted.size(); ++i) {
      up[i] = to_float(from_float<T>(up[i] + first[i]));
      down[i] = to_float(from_float<T>(down[i] + last[i]));
    }
  }
  EXPECT_EQ(up, wanted);
  EXPECT_EQ(down, wanted);
}

TEST(KnownSums, AreExactInEveryTypeAndOrder) {
  for (const int ranks : {1, 2, 3, 4, 8, 100, 128, 1000}) {
    expect_exact_sums<float>(Precision::fp32, ranks);
    expect_exact_sums<Bf16>(Precision::bf16, ranks);
    expect_exact_sums<Fp16>(Precision::fp16, ranks);
  }
}

TEST(KnownSums, HaveSomethingOfEveryRank) {
  for (const int ranks : {129, 1000, 4096}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto given =
          values_of<float>(known_values({nullptr, 1021, Precision::fp32}, rank, ranks));
      EXPECT_TRUE(std::ranges::any_of(given, [](float value) { return value != 0; }))
          << rank << " of " << ranks;
    }
  }
}

// The largest sum, and which share of them rounding to bf16 changes.
template <class T>
void expect_filled(Precision type, float most, double least_changed) {
  for (const int ranks : {2, 4, 8}) {
    const std::vector<float> sums = values_of<T>(known_sums({nullptr, 1021, type}, ranks));
    const float largest = *std::max_element(sums.begin(), sums.end());
    EXPECT_LT(largest, most);
    EXPECT_GT(largest, most / 2) << to_string(type) << " of " << ranks << " ranks";
    const auto changed = std::count_if(
        sums.begin(), sums.end(), [](float sum) { return to_float(from_float<Bf16>(sum)) != sum; });
    EXPECT_GE(static_cast<double>(changed) / static_cast<double>(sums.size()), least_changed)
        << to_string(type) << " of " << ranks << " ranks";
  }
}

TEST(KnownSums, NeedThePrecisionOfTheirType) {
  expect_filled<float>(Precision::fp32, 1 << 20, 0.95);
  expect_filled<Fp16>(Precision::fp16, 2048, 0.7);
  expect_filled<Bf16>(Precision::bf16, 256, 0);
}

TEST(KnownSums, OfManyRanksAreNotAllTheSame) {
  for (const Precision type : {Precision::fp16, Precision::bf16}) {
    const std::string sums = known_sums({nullptr, 1021, type}, 128);
    EXPECT_NE(sums.substr(0, 1000), sums.substr(1000, 1000)) << to_string(type);
  }
}

TEST(KnownSums, TellPlacesApart) {
  for (const Precision type : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const auto size = static_cast<size_t>(element_bytes(type));
    for (const int ranks : {2, 4, 8}) {
      const std::string sums = known_sums({nullptr, 8192, type}, ranks);
      for (size_t places = 1; places <= 4096; places *= 2) {
        EXPECT_NE(sums.substr(0, size * places), sums.substr(size * places, size * places))
            << to_string(type) << " of " << ranks << " ranks: parts of " << places
            << " in each other's place";
      }
    }
  }
}

}  // namespace
}  // namespace nearmetal
