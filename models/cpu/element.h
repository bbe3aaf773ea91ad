// The two types of activations on a CPU, for loops that are written once for both.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "models/program.h"

namespace nearmetal {

struct Bf16 {
  uint16_t bits;
};

inline float to_float(float value) { return value; }
inline float to_float(Bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

template <class T>
T from_float(float value);
template <>
inline float from_float<float>(float value) {
  return value;
}
/// To nearest, ties to even; a NaN stays one.
template <>
inline Bf16 from_float<Bf16>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return {static_cast<uint16_t>(std::isnan(value) ? (bits >> 16) | 0x40 : rounded)};
}

/// max(value, 0), written so that a NaN passes.
inline float positive_part(float value) { return value < 0 ? 0 : value; }

/// Calls body with a null pointer of the activations' type.
template <class Body>
void with_element_type(Precision precision, Body body) {
  if (precision == Precision::bf16) {
    body(static_cast<Bf16*>(nullptr));
  } else {
    body(static_cast<float*>(nullptr));
  }
}

}  // namespace nearmetal
