// The 16-bit floating-point types as a host holds them, for loops that are written once for all.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "models/training_options.h"

namespace nearmetal {

/// The upper half of an fp32: sign, 8 bits of exponent, 7 of mantissa.
struct Bf16 {
  uint16_t bits;
};
/// IEEE 754 binary16: sign, 5 bits of exponent, 10 of mantissa; largest 65504.
struct Fp16 {
  uint16_t bits;
};

inline float to_float(float value) { return value; }
inline float to_float(Bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
/// Selects in place of branches, so that loops over it are vectorised.
inline float to_float(Fp16 value) {
  constexpr uint32_t first_normal = 0x400, infinity = 0x7c00;
  const uint32_t magnitude = value.bits & 0x7fffu;
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  // The exponents of both types are biased: 15 and 127; that of infinity and NaN is 31 and 255.
  const uint32_t bias = magnitude < infinity ? 112u << 23 : 224u << 23;
  const uint32_t bits =
      magnitude < first_normal ? std::bit_cast<uint32_t>(subnormal) : (magnitude << 13) + bias;
  return std::bit_cast<float>(bits | uint32_t{value.bits & 0x8000u} << 16);
}

/// To nearest, ties to even; a NaN stays one; beyond the largest value: infinity.
template <class T>
T from_float(float value);
template <>
inline float from_float<float>(float value) {
  return value;
}
template <>
inline Bf16 from_float<Bf16>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return {static_cast<uint16_t>(std::isnan(value) ? (bits >> 16) | 0x40 : rounded)};
}
template <>
inline Fp16 from_float<Fp16>(float value) {
  constexpr uint32_t first_normal = 0x38800000, two_to_16 = 0x47800000, infinity = 0x7f800000;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  // Just below 2^16 the carry makes it infinity.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // The last place of 0.5 is 2^-24, that of a subnormal: the sum is rounded where it should be.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                             std::bit_cast<uint32_t>(0.5f);
  const uint32_t beyond = magnitude > infinity ? 0x7e00 : 0x7c00;
  const uint32_t finite = magnitude < first_normal ? subnormal : normal;
  const uint32_t sign = (bits >> 16) & 0x8000;
  return {static_cast<uint16_t>(sign | (magnitude < two_to_16 ? finite : beyond))};
}

/// Calls `body`, a template of the type that `precision` is stored in.
template <class Body>
void with_stored_type(Precision precision, Body body) {
  if (precision == Precision::bf16) return body.template operator()<Bf16>();
  if (precision == Precision::fp16) return body.template operator()<Fp16>();
  body.template operator()<float>();
}

}  // namespace nearmetal
