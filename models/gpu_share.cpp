#include "models/gpu_share.h"

#include <algorithm>
#include <numeric>

namespace nearmetal {

SmGroups sm_groups_of(const GpuShare& part, unsigned multiprocessors, unsigned smallest) {
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
