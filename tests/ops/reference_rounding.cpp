// The values that a precision has.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/reference.h"

namespace nearmetal {

double rounded(double value, Precision precision) {
  if (precision == Precision::fp32) return static_cast<float>(value);
  if (value == 0 || !std::isfinite(value)) return value;
  const bool half = precision == Precision::fp16;
  const int significant_bits = precision == Precision::bf16 ? 8 : 11;
  const int smallest_exponent = half ? -14 : -126;  // of a normal value; below it bits are lost
  const int exponent = std::max(std::ilogb(value), smallest_exponent);
  const double spacing = std::ldexp(1.0, exponent - (significant_bits - 1));
  const double nearest = std::nearbyint(value / spacing) * spacing;
  const double limit = half ? 0x1p16 : 0x1p128;
  return std::abs(nearest) < limit ? nearest
                                   : std::copysign(std::numeric_limits<double>::infinity(), value);
}

}  // namespace nearmetal
