// One of several parts of a GPU's multiprocessors, each for a process of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nearmetal {

struct GpuShare {
  size_t index = 0;               // of this process's part
  std::vector<int64_t> percents;  // of the multiprocessors, by part
};

/// How a GPU is split so that every part is made of whole groups.
struct SmGroups {
  unsigned multiprocessors = 0;  // of each group
  unsigned first = 0;            // of this part
  unsigned count = 0;            // of this part
  unsigned needed = 0;           // by all parts
};

/// Each part has as many multiprocessors as fit into its percentage and are a multiple of
/// `smallest`, but at least so many; parts follow each other. Groups are as large as possible,
/// since the GPU's own clusters of multiprocessors leave a rest at every split.
SmGroups sm_groups_of(const GpuShare& part, unsigned multiprocessors, unsigned smallest);

}  // namespace nearmetal
