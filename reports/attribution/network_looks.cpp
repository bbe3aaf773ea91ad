// The ways between ranks: what NCCL took, and the NICs.
#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "reports/attribution/known_causes.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

using Side = ExplainedSide;
using Words = std::set<std::string>;

Words transports_of(const Side& side) {
  Words names;
  for (const Run* run : side.runs) {
    if (!run->communication || !run->communication->nccl) continue;
    const std::vector<std::string>& found = run->communication->nccl->transports;
    names.insert(found.begin(), found.end());
  }
  return names;
}

std::string list_of_names(const Words& names) { return joined({names.begin(), names.end()}); }

bool reads_gpus(const std::string& transport) { return transport.find("GDRDMA") != transport.npos; }
bool is_p2p(const std::string& transport) { return transport.starts_with("P2P"); }
bool is_shared(const std::string& transport) { return transport.starts_with("SHM"); }
bool is_network(const std::string& transport) { return transport.starts_with("NET"); }
bool is_socket(const std::string& transport) { return transport.starts_with("NET/Socket"); }
bool is_rdma(const std::string& transport) {
  return is_network(transport) && !is_socket(transport);
}

// Both sides are known, the base has the better one and not the worse one, which the new side has.
template <class Better, class Worse>
Seen if_worse(const Side& base, const Side& next, const Better& better, const Worse& worse) {
  const Words there = transports_of(base), here = transports_of(next);
  if (std::ranges::none_of(there, better) || std::ranges::any_of(there, worse) ||
      std::ranges::none_of(here, worse)) {
    return std::nullopt;
  }
  return "NCCL goes by " + list_of_names(here) + " instead of " + list_of_names(there);
}

// Whether ranks of one job are on several systems, or NCCL says that it takes the network.
bool uses_network(const Side& side) {
  for (const Run* run : side.runs) {
    std::set<int64_t> systems;
    for (const Rank& rank : run->ranks) systems.insert(rank.environment);
    if (systems.size() > 1) return true;
  }
  return std::ranges::any_of(transports_of(side), is_network);
}

template <class Visit>
void each_gpu(const Side& side, const Visit& visit) {
  for (const Environment* environment : side.environments) {
    for (const Gpu& gpu : environment->gpus) visit(gpu);
  }
}

// Whether some NIC can read and write the memory of every GPU; none where that is not known.
std::optional<bool> nics_read_gpus(const Side& side) {
  std::optional<bool> all;
  each_gpu(side, [&](const Gpu& gpu) {
    std::optional<bool> any;
    for (const NicPath& path : gpu.nics) {
      if (!path.gpu_direct_rdma) continue;
      any = any.value_or(false) || *path.gpu_direct_rdma != GpuDirectRdma::none;
    }
    if (any) all = all.value_or(true) && *any;
  });
  return all;
}

bool is_active(const RdmaPort& port) { return port.state && *port.state == "active"; }

bool has_active_port(const RdmaDevice& device) {
  return std::ranges::any_of(device.ports, is_active);
}

// Earlier reports have the RDMA devices as names of those of network interfaces alone.
bool names_rdma_alone(const Environment& environment) {
  return environment.rdma.empty() &&
         std::ranges::any_of(environment.network, [](const NetworkInterface& one) {
           return one.rdma_device.value.has_value();
         });
}

// The active NICs of the system that has the fewest.
std::optional<double> fewest_active_nics(const Side& side) {
  std::optional<double> fewest;
  for (const Environment* environment : side.environments) {
    if (names_rdma_alone(*environment)) return std::nullopt;
    const auto active =
        static_cast<double>(std::ranges::count_if(environment->rdma, has_active_port));
    fewest = std::min(fewest.value_or(active), active);
  }
  return fewest;
}

Words without_file(const Side& side) {
  Words names;
  for (const Environment* environment : side.environments) {
    for (const RdmaDevice& device : environment->rdma) {
      if (device.device_file.value == false) names.insert(device.name);
    }
  }
  return names;
}

std::optional<PciDistance> nearest_nic(const Gpu& gpu) {
  std::optional<PciDistance> nearest;
  for (const NicPath& path : gpu.nics) {
    if (path.distance) nearest = std::min(nearest.value_or(*path.distance), *path.distance);
  }
  return nearest;
}

std::optional<PciDistance> farthest_of_nearest(const Side& side) {
  std::optional<PciDistance> farthest;
  each_gpu(side, [&](const Gpu& gpu) {
    const std::optional<PciDistance> nearest = nearest_nic(gpu);
    if (nearest) farthest = std::max(farthest.value_or(*nearest), *nearest);
  });
  return farthest;
}

// There an IOMMU is always in the way; bare metal may do without both.
bool in_vms(const Side& side) {
  return std::ranges::any_of(side.environments, [](const Environment* environment) {
    return environment->virtualisation.machine.value == MachineKind::vm;
  });
}

// The names of what has it off; `known`: whether anything tells.
Words without_ats(const Side& side, bool& known) {
  Words names;
  const auto look = [&](const Maybe<bool>& ats, const std::string& name) {
    known = known || ats;
    if (ats && !*ats) names.insert(name);
  };
  each_gpu(side, [&](const Gpu& gpu) {
    if (gpu.ats_capable.value != false) look(gpu.ats, gpu.name);  // many GPUs have none
  });
  for (const Environment* environment : side.environments) {
    for (const RdmaDevice& device : environment->rdma) look(device.ats, device.name);
  }
  return names;
}

std::optional<double> fastest_port(const Environment& environment) {
  std::optional<double> fastest;
  const auto take = [&](const Maybe<int64_t>& rate) {
    if (!rate) return;
    const auto number = static_cast<double>(*rate);
    fastest = std::max(fastest.value_or(number), number);
  };
  for (const NetworkInterface& one : environment.network) {
    if (one.state && *one.state == "up") take(one.bits_per_second);
  }
  for (const RdmaDevice& device : environment.rdma) {
    for (const RdmaPort& port : device.ports) {
      if (is_active(port)) take(port.bits_per_second);
    }
  }
  return fastest;
}

std::optional<double> slowest_of_fastest(const Side& side) {
  std::optional<double> slowest;
  for (const Environment* environment : side.environments) {
    const std::optional<double> fastest = fastest_port(*environment);
    if (fastest) slowest = std::min(slowest.value_or(*fastest), *fastest);
  }
  return slowest;
}

}  // namespace

Seen lost_p2p(const Side& base, const Side& next) {
  return if_worse(base, next, is_p2p, is_shared);
}

Seen lost_shared_memory(const Side& base, const Side& next) {
  const auto within = [](const std::string& name) { return is_p2p(name) || is_shared(name); };
  return if_worse(base, next, within, is_network);
}

Seen lost_gpu_direct_rdma(const Side& base, const Side& next) {
  const auto through_host = [](const std::string& name) {
    return is_rdma(name) && !reads_gpus(name);
  };
  if (Seen seen = if_worse(base, next, reads_gpus, through_host)) return seen;
  if (!uses_network(next) || nics_read_gpus(base) != true || nics_read_gpus(next) != false)
    return std::nullopt;
  return "no NIC can read the memory of a GPU (GPUDirect RDMA)";
}

Seen lost_rdma(const Side& base, const Side& next) {
  return if_worse(base, next, is_rdma, is_socket);
}

Seen other_transports(const Side& base, const Side& next) {
  for (const auto look : {lost_p2p, lost_shared_memory, lost_gpu_direct_rdma, lost_rdma}) {
    if (look(base, next)) return std::nullopt;
  }
  const Words there = transports_of(base), here = transports_of(next);
  if (there.empty() || here.empty() || there == here) return std::nullopt;
  return "NCCL goes by " + list_of_names(here) + " instead of " + list_of_names(there);
}

Seen lost_device_files(const Side& base, const Side& next) {
  if (!uses_network(next)) return std::nullopt;
  const Words there = without_file(base), here = without_file(next);
  if (!there.empty() || here.empty()) return std::nullopt;
  return "RDMA devices have no file in /dev/infiniband: " + list_of_names(here);
}

Seen fewer_nics(const Side& base, const Side& next) {
  if (!uses_network(next)) return std::nullopt;
  return if_less("RDMA devices with an active port:", fewest_active_nics(base),
                 fewest_active_nics(next));
}

Seen farther_nics(const Side& base, const Side& next) {
  const std::optional<PciDistance> there = farthest_of_nearest(base);
  const std::optional<PciDistance> here = farthest_of_nearest(next);
  if (!uses_network(next) || !there || !here || *here <= *there) return std::nullopt;
  return std::string("from a GPU to its nearest NIC: ") + to_string(*here) + " instead of " +
         to_string(*there);
}

Seen lost_ats(const Side& base, const Side& next) {
  bool known_there = false, known_here = false;
  const Words there = without_ats(base, known_there), here = without_ats(next, known_here);
  const bool lost = known_there && there.empty();
  if (here.empty() || (!lost && (in_vms(base) || !in_vms(next)))) return std::nullopt;
  return "address translation (ATS) is off" + std::string(lost ? "" : " in the VM") + ": " +
         list_of_names(here);
}

Seen slower_network(const Side& base, const Side& next) {
  if (!uses_network(next)) return std::nullopt;
  constexpr double gigabit = 1e-9;
  return if_less("fastest network of a system, in Gbit/s:", slowest_of_fastest(base),
                 slowest_of_fastest(next), gigabit);
}

}  // namespace nearmetal
