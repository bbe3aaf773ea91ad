#include "bench/run/gpu_ranks.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bench/run/together.h"

namespace nearmetal {

void choose_gpu(RunConfig& config, const Origins& origins, Backend& backend, const World& world) {
  if (config.device != Device::cuda || origins.at("gpu") == Origin::flag || world.size() == 1)
    return;
  config.gpu = world.local_rank() % std::max(1, backend.device_count());
}

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

NcclGroup new_nccl_group(World& world, const NcclSetUp& set_up) {
  Nccl& nccl = set_up_nccl(world, set_up);
  std::string name;
  together(world, [&] {
    if (world.rank() == 0) name = nccl.new_group();
  });
  return {nccl, world.broadcast(name)};
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

std::string new_host_group(World& world, Nccl& nccl, const HostPlace& place) {
  std::string name;
  together(world, [&] {
    if (world.rank() == place.first_rank) name = nccl.new_group();
  });
  return world.all_gather(name)[place.first_rank];
}

std::unique_ptr<AllReduce> join_hierarchical(World& world, Nccl& nccl, const std::string& group,
                                             const HostPlace& place, int gpu,
                                             std::function<void(const std::string& why)> failed) {
  return nccl.join_hierarchical(group, place, gpu,
                                {world.host_sum(place.local_rank), std::move(failed)});
}

}  // namespace nearmetal
