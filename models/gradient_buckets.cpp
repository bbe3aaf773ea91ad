#include "models/gradient_buckets.h"

#include <algorithm>

namespace nearmetal {

std::vector<BucketRange> cut_buckets(const std::map<int64_t, size_t>& completed_by, int64_t total,
                                     int64_t wanted) {
  std::vector<BucketRange> buckets{BucketRange{}};
  bool is_last = wanted == 0;
  for (const auto& [begin, operation] : completed_by) {
    const bool full = begin - buckets.back().begin >= wanted;
    const bool fits_at_end = total - begin <= total / 100;
    if (!is_last && begin > 0 && (full || fits_at_end)) {
      buckets.back().end = begin;
      buckets.push_back({begin, begin, buckets.back().complete_after});
      is_last = fits_at_end;
    }
    buckets.back().complete_after = std::max(buckets.back().complete_after, operation);
  }
  buckets.back().end = total;
  return buckets;
}

}  // namespace nearmetal
