// Where the buffers of a step lie in memory, and where its flat gradient is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace nearmetal {

/// `bytes`, or what else there is, up to the next multiple of `unit`.
constexpr int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

/// A buffer in use from the step's operation `first_use` to `last_use`, both included.
struct BufferLife {
  int64_t bytes = 0;
  int first_use = 0;
  int last_use = 0;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one for each buffer, multiples of the alignment
  int64_t total_bytes = 0;
};

/// Greedy by size, largest first, each at the lowest offset that is free during its whole life
/// (Pisarchyk and Lee, 2020, arXiv 2001.03288: within a few per cent of optimal for such graphs).
MemoryPlan plan_memory(const std::vector<BufferLife>& buffers, int64_t alignment = 1024);

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
