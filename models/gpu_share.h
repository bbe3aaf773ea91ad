// One of several parts of a GPU's multiprocessors, each for a process of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
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
inline SmGroups sm_groups_of(const GpuShare& part, unsigned multiprocessors, unsigned smallest) {
  std::vector<unsigned> sizes;
  SmGroups groups;
  for (const int64_t percent : part.percents) {
    const unsigned wanted = multiprocessors * static_cast<unsigned>(percent) / 100;
    sizes.push_back(std::max(smallest, wanted / smallest * smallest));
    groups.multiprocessors = std::gcd(groups.multiprocessors, sizes.back());
  }
  const unsigned size = std::max(groups.multiprocessors, 1u);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i == part.index) groups.first = groups.needed;
    groups.needed += sizes[i] / size;
  }
  groups.count = sizes.at(part.index) / size;
  return groups;
}

}  // namespace nearmetal
