#include "comm/known_boundary.h"

#include <algorithm>

namespace nearmetal {

std::string known_boundary(int64_t bytes, int from, int run) {
  constexpr int64_t length = known_boundary_period;
  std::string values(bytes, '\0');
  for (int64_t i = 0; i < std::min(bytes, length); ++i) {
    values[i] = static_cast<char>((i + 31 * from + 97 * run) % length);
  }
  // Copies double what is filled, as a boundary may have gigabytes.
  for (int64_t filled = length; filled < bytes; filled *= 2) {
    std::copy_n(values.begin(), std::min(filled, bytes - filled), values.begin() + filled);
  }
  return values;
}

}  // namespace nearmetal
