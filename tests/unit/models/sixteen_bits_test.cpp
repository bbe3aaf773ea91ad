#include "models/sixteen_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nearmetal {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Sign, exponent and mantissa by their definition.
double value_of(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * infinity : NAN;
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
}

template <class T>
void expect_all_values(int exponent_bits, int mantissa_bits) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T value{static_cast<uint16_t>(bits)};
    const double wanted = value_of(value.bits, exponent_bits, mantissa_bits);
    const float found = to_float(value);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
      ASSERT_TRUE(std::isnan(to_float(from_float<T>(found)))) << bits;
      continue;
    }
    ASSERT_EQ(found, wanted) << bits;
    ASSERT_EQ(from_float<T>(found).bits, value.bits);
  }
}

// Between each value and the next: what is nearer, and the even one from the middle.
template <class T>
void expect_nearest(uint16_t largest) {
  for (uint16_t bits = 0; bits < largest; ++bits) {
    const T low{bits}, high{static_cast<uint16_t>(bits + 1)};
    const float middle = to_float(low) / 2 + to_float(high) / 2;
    const uint16_t even = bits % 2 == 0 ? low.bits : high.bits;
    ASSERT_EQ(from_float<T>(middle).bits, even) << middle;
    ASSERT_EQ(from_float<T>(-middle).bits, even | 0x8000) << middle;
    ASSERT_EQ(from_float<T>(std::nextafter(middle, 0.0f)).bits, low.bits) << middle;
    ASSERT_EQ(from_float<T>(std::nextafter(middle, infinity)).bits, high.bits) << middle;
  }
}

TEST(SixteenBits, EveryFp16IsWhatItsBitsSay) { expect_all_values<Fp16>(5, 10); }
TEST(SixteenBits, EveryBf16IsWhatItsBitsSay) { expect_all_values<Bf16>(8, 7); }
TEST(SixteenBits, Fp16IsRoundedToNearestEven) { expect_nearest<Fp16>(0x7bff); }
TEST(SixteenBits, Bf16IsRoundedToNearestEven) { expect_nearest<Bf16>(0x7f7f); }

TEST(SixteenBits, BeyondTheLargestValueIsInfinity) {
  EXPECT_EQ(to_float(from_float<Fp16>(65519)), 65504);
  for (const float value : {65520.0f, 65536.0f, 1e38f, infinity}) {
    EXPECT_EQ(to_float(from_float<Fp16>(value)), infinity) << value;
    EXPECT_EQ(to_float(from_float<Fp16>(-value)), -infinity) << value;
  }
  EXPECT_EQ(to_float(from_float<Bf16>(std::numeric_limits<float>::max())), infinity);
}

TEST(SixteenBits, TooSmallForFp16IsZero) {
  EXPECT_EQ(from_float<Fp16>(0x1p-25f).bits, 0) << "to even";
  EXPECT_EQ(from_float<Fp16>(0x1.8p-25f).bits, 1);
  EXPECT_EQ(from_float<Fp16>(-0x1p-126f).bits, 0x8000);
  EXPECT_EQ(from_float<Fp16>(0x1p-149f).bits, 0);
}

}  // namespace
}  // namespace nearmetal
