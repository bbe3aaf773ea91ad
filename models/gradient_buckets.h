// Where the flat gradient is cut, so that its parts travel while the backward pass goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nearmetal {

/// The gradient of one parameter: where it begins, and the operation of the step that completes it.
struct GradientSlice {
  int64_t begin = 0;
  size_t complete_after = 0;
};

struct BucketRange {
  int64_t begin = 0;
  int64_t end = 0;
  size_t complete_after = 0;
};

/// Cuts [0, `total`) between slices, which are in the order of their begins, into buckets of at
/// least `wanted` (0: one bucket). Since nothing hides the last one, all that fits into a hundredth
/// of the total is a bucket of its own. Buckets are complete one after another.
std::vector<BucketRange> cut_buckets(std::span<const GradientSlice> slices, int64_t total,
                                     int64_t wanted);

}  // namespace nearmetal
