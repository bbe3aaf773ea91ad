// Places buffers that live at different times of a step into one allocation.
#pragma once

#include <cstdint>
#include <vector>

namespace nearmetal {

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

}  // namespace nearmetal
