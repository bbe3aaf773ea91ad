#include "bench/gpu_ranks.h"

#include <algorithm>
#include <stdexcept>

#include "bench/together.h"

namespace nearmetal {

void choose_gpu(RunConfig& config, const Origins& origins, Backend& backend, const World& world) {
  if (config.device != "cuda" || origins.at("gpu") == Origin::flag || world.size() == 1) return;
  config.gpu = world.local_rank() % std::max(1, backend.device_count());
}

NcclGroup new_nccl_group(World& world, const NcclSetUp& set_up) {
  Nccl* nccl = nullptr;
  std::string name;
  together(world, [&] {
    nccl = &load_nccl();
    nccl->set_up(set_up);
    if (world.rank() == 0) name = nccl->new_group();
  });
  const std::string version = world.broadcast(nccl->version());
  together(world, [&] {
    if (nccl->version() == version) return;
    throw std::runtime_error("this rank loads " + nccl->version() + ", rank 0 " + version);
  });
  return {*nccl, world.broadcast(name)};
}

}  // namespace nearmetal
