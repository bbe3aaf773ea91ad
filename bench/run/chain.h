// Work whose time depends on nothing but a CPU's clock.
#pragma once

#include <cstdint>

namespace nearmetal {

/// A chain in which every step needs the one before, so that no processor does it side by side.
inline uint64_t multiply_in_a_chain(uint64_t value, int64_t length) {
  for (int64_t i = 0; i < length; ++i) value = value * 6364136223846793005U + 1442695040888963407U;
  return value;
}

}  // namespace nearmetal
