#include "models/memory_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace nearmetal {

MemoryPlan plan_memory(const std::vector<BufferLife>& buffers, int64_t alignment) {
  std::vector<int> by_size(buffers.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::stable_sort(by_size, std::greater(), [&](int i) { return buffers[i].bytes; });

  MemoryPlan plan{std::vector<int64_t>(buffers.size()), 0};
  std::vector<int> placed;  // by rising offset
  for (const int index : by_size) {
    const BufferLife& buffer = buffers[index];
    const int64_t bytes = round_up(buffer.bytes, alignment);
    int64_t offset = 0;
    for (const int other : placed) {
      const bool overlaps = buffers[other].first_use <= buffer.last_use &&
                            buffer.first_use <= buffers[other].last_use;
      if (!overlaps) continue;
      if (offset + bytes <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + round_up(buffers[other].bytes, alignment));
    }
    plan.offsets[index] = offset;
    plan.total_bytes = std::max(plan.total_bytes, offset + bytes);
    const auto position =
        std::ranges::find_if(placed, [&](int other) { return plan.offsets[other] > offset; });
    placed.insert(position, index);
  }
  return plan;
}

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
