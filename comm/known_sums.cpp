#include "comm/known_sums.h"

#include <algorithm>
#include <array>

#include "models/sixteen_bits.h"

namespace nearmetal {
namespace {

constexpr int pattern_length = 1021;
constexpr int stride = 37;        // so that values in a wrong place nearby are others
constexpr int exact_below = 256;  // bf16 has 8 bits of precision
constexpr int most_givers = 128;

int given(int place, int rank, int ranks) {
  const int givers = std::min(ranks, most_givers);
  if (rank >= givers) return 0;
  return (place * stride % pattern_length + rank) % (exact_below / givers);
}

// value(0), value(1), ... of the pattern, again and again.
template <class Value>
std::string repeated(const GradientBucket& bucket, Value value) {
  std::string bytes(bucket.bytes(), '\0');
  with_stored_type(bucket.type, [&]<class T>(T*) {
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
  return repeated(bucket, [&](int place) { return given(place, rank, ranks); });
}

std::string known_sums(const GradientBucket& bucket, int ranks) {
  return repeated(bucket, [&](int place) {
    int sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += given(place, rank, ranks);
    return sum;
  });
}

}  // namespace nearmetal
