#include "comm/known_sums.h"

#include <gtest/gtest.h>

#include <vector>

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

TEST(KnownSums, TellPlacesApart) {
  const GradientBucket bucket{nullptr, 8192, Precision::bf16};
  const std::string sums = known_sums(bucket, 4);
  for (size_t places = 1; places <= 4096; places *= 2) {
    EXPECT_NE(sums.substr(0, 2 * places), sums.substr(2 * places, 2 * places))
        << "parts of " << places << " in each other's place";
  }
}

}  // namespace
}  // namespace nearmetal
