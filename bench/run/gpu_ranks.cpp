#include "bench/run/gpu_ranks.h"

#include <stdexcept>

#include "bench/run/together.h"

namespace nearmetal {

Nccl& set_up_nccl(World& world, const NcclSetUp& set_up) {
  Nccl* nccl = nullptr;
  together(world, [&] {
    nccl = &load_nccl();
    nccl->set_up(set_up);
  });
  const std::string version = world.broadcast(nccl->version());
  together(world, [&] {
    if (nccl->version() == version) return;
    throw std::runtime_error("this rank loads " + nccl->version() + ", rank 0 " + version);
  });
  return *nccl;
}

std::string new_nccl_group(World& world, Nccl& nccl, int maker) {
  std::string name;
  together(world, [&] {
    if (world.rank() == maker) name = nccl.new_group();
  });
  return world.all_gather(name)[maker];
}

std::vector<RankHost> hosts_of_ranks(World& world) {
  const RankHost own = rank_host();
  std::vector<RankHost> hosts;
  for (const std::string& text : world.all_gather(own.name + '\0' + own.boot_id)) {
    const size_t end = text.find('\0');
    hosts.push_back({text.substr(0, end), text.substr(end + 1)});
  }
  return hosts;
}

}  // namespace nearmetal
