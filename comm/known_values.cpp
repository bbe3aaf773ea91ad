#include "comm/known_values.h"

#include <algorithm>
#include <array>

#include "models/program.h"
#include "models/sixteen_bits.h"

namespace nearmetal {
namespace {

constexpr int pattern_length = 1021;
constexpr int64_t stride = 611957;  // so that values in a wrong place nearby are others
constexpr int64_t prime = 1048583;  // beyond all that is given
constexpr int most_givers = 128;

// Numbers below this are exact: in bf16 and fp16 all that 8 and 11 bits of precision hold.
int exact_below(Precision type) {
  if (type == Precision::bf16) return 256;
  return type == Precision::fp16 ? 2048 : 1 << 20;
}

int given(Precision type, int place, int rank, int ranks) {
  const int givers = std::min(ranks, most_givers);
  // Of more ranks others give at the next place, so that all do somewhere.
  const int64_t turn = (rank + int64_t{place} * givers) % ranks;
  if (turn >= givers) return 0;
  // Not linear in the rank, where all places would have the same sum.
  const int64_t mixed = (place + 1) * stride * (rank + 1) % prime * (place + rank + 1) % prime;
  return static_cast<int>(mixed % (exact_below(type) / givers));
}

// value(0), value(1), ... of the pattern, again and again.
template <class Value>
std::string repeated(const GradientBucket& bucket, Value value) {
  std::string bytes(bucket.bytes(), '\0');
  with_stored_type(bucket.type, [&]<class T>() {
    std::array<T, pattern_length> pattern;
    for (int i = 0; i < pattern_length; ++i) {
      pattern[i] = from_float<T>(static_cast<float>(value(i)));
    }
    T* elements = reinterpret_cast<T*>(bytes.data());
    for (int64_t i = 0; i < bucket.elements; ++i) elements[i] = pattern[i % pattern_length];
  });
  return bytes;
}

}  // namespace

std::string known_values(const GradientBucket& bucket, int rank, int ranks) {
  return repeated(bucket, [&](int place) { return given(bucket.type, place, rank, ranks); });
}

std::string known_sums(const GradientBucket& bucket, int ranks) {
  return repeated(bucket, [&](int place) {
    int sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      sum += given(bucket.type, place, rank, ranks);
    }
    return sum;
  });
}

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
