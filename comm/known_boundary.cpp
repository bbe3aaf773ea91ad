#include "comm/known_boundary.h"

namespace nearmetal {

std::string known_boundary(int64_t bytes, int from, int run) {
  constexpr int64_t length = 251;
  std::string values(bytes, '\0');
  for (int64_t i = 0; i < bytes; ++i) {
    values[i] = static_cast<char>((i + 31 * from + 97 * run) % length);
  }
  return values;
}

}  // namespace nearmetal
