// Where the flat gradient is cut, so that its parts travel while the backward pass goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace nearmetal {

struct BucketRange {
  int64_t begin = 0;
  int64_t end = 0;
  size_t complete_after = 0;
};

/// Cuts [0, `total`) where gradients of parameters begin into buckets of at least `wanted` (0: one
/// bucket). `completed_by`: by the begin of each gradient the operation of the step that completes
/// it. Since nothing hides the last bucket, all that fits into a hundredth of the total is a bucket
/// of its own. Buckets are complete one after another.
std::vector<BucketRange> cut_buckets(const std::map<int64_t, size_t>& completed_by, int64_t total,
                                     int64_t wanted);

}  // namespace nearmetal
