#include "reports/merge/merge_environments.h"

#include <algorithm>

namespace nearmetal {
namespace {

size_t place_of(const Environment& found, std::vector<Environment>& all) {
  const auto same = [&](const Environment& other) {
    return other.host_name == found.host_name && other.kernel == found.kernel;
  };
  auto place = std::find_if(all.begin(), all.end(), same);
  if (place == all.end()) {
    place = all.insert(place, found);
    place->gpus.clear();
  }
  return place - all.begin();
}

// A process with a share of the multiprocessors sees that share as the GPU.
int64_t place_of(const Gpu& gpu, std::vector<Gpu>& gpus) {
  const auto same = [&](const Gpu& other) {
    return gpu.uuid && other.uuid && *gpu.uuid == *other.uuid &&
           gpu.multiprocessors == other.multiprocessors;
  };
  auto place = std::find_if(gpus.begin(), gpus.end(), same);
  if (place == gpus.end()) place = gpus.insert(place, gpu);
  return place - gpus.begin();
}

}  // namespace

void merge_environments(const std::vector<Environment>& found, std::vector<Rank>& ranks,
                        std::vector<Environment>& all) {
  for (Rank& rank : ranks) {
    const Environment& own = found.at(rank.environment);
    const size_t place = place_of(own, all);
    rank.environment = static_cast<int64_t>(place);
    if (rank.gpu) rank.gpu = place_of(own.gpus.at(*rank.gpu), all[place].gpus);
  }
}

}  // namespace nearmetal
