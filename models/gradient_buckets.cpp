#include "models/gradient_buckets.h"

#include <algorithm>

namespace nearmetal {

std::vector<BucketRange> cut_buckets(std::span<const GradientSlice> slices, int64_t total,
                                     int64_t wanted) {
  std::vector<BucketRange> buckets{BucketRange{}};
  bool is_last = wanted == 0;
  for (const GradientSlice& slice : slices) {
    const bool full = slice.begin - buckets.back().begin >= wanted;
    const bool fits_at_end = total - slice.begin <= total / 100;
    if (!is_last && slice.begin > 0 && (full || fits_at_end)) {
      buckets.back().end = slice.begin;
      buckets.push_back({slice.begin, slice.begin, buckets.back().complete_after});
      is_last = fits_at_end;
    }
    buckets.back().complete_after = std::max(buckets.back().complete_after, slice.complete_after);
  }
  buckets.back().end = total;
  return buckets;
}

}  // namespace nearmetal
