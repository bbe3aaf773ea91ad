#include "bench/sweep/mig_found.h"

#include <algorithm>
#include <map>

#include "bench/environment/gpu.h"
#include "bench/sweep/hosts_found.h"
#include "comm/layout/mig_config.h"
#include "comm/layout/mig_placement.h"
#include "models/errors.h"

namespace nearmetal {
namespace {

std::vector<Gpu> gpus_in_order(const std::string& nvml_library) {
  std::vector<Gpu> gpus = all_gpus(Nvml(nvml_library), "/");
  std::erase_if(gpus, [](const Gpu& gpu) { return gpu.lost.has_value(); });
  std::ranges::stable_sort(gpus, [](const Gpu& a, const Gpu& b) {
    return a.pci_id.value.value_or("") < b.pci_id.value.value_or("");
  });
  return gpus;
}

GpuPlace place_of(const Gpu& gpu, const std::vector<Gpu>& gpus) {
  GpuPlace place;
  for (const GpuPeer& peer : gpu.peers) {
    const auto other =
        std::ranges::find_if(gpus, [&](const Gpu& one) { return one.pci_id.value == peer.pci_id; });
    if (peer.nvlink.value == true && other != gpus.end()) {
      place.nvlinks.push_back(other - gpus.begin());
    }
  }
  for (const NicPath& path : gpu.nics) {
    if (!path.distance || (place.nearest_nic && *place.nearest_nic <= *path.distance)) continue;
    place.nearest_nic = *path.distance;
    place.nic = path.rdma_device;
  }
  return place;
}

std::string no_mig_of(const Gpu& gpu) {
  if (gpu.vgpu_profile) return "it is a vGPU, which the host of its VM divides";
  if (!gpu.mig) return "the GPU has no MIG (" + gpu.mig.reason + ")";
  return *gpu.mig ? "" : mig_is_off;
}

void add_devices(const Gpu& gpu, int64_t index, Host& host) {
  for (const MigInstance& instance : gpu.mig_instances) {
    if (!instance.uuid) continue;
    host.mig.push_back({index, *instance.uuid, instance.profile.value.value_or("")});
  }
}

bool by_mig(const Layout& layout, const std::string& host) {
  return std::ranges::any_of(layout.jobs, [&](const Job& job) {
    return job.share && job.share->mode == SharingMode::mig &&
           std::ranges::any_of(job.instances,
                               [&](const Instance& instance) { return instance.host == host; });
  });
}

// The first device that is not there as planned, in a layout whose jobs share by MIG.
std::string missing_device(const Placement& placement, const Host& host) {
  for (const PlacedJob& job : placement.jobs) {
    for (const PlacedRank& rank : job.ranks) {
      if (!rank.mig || rank.host != host.name) continue;
      const auto there = std::ranges::any_of(host.mig, [&](const MigDevice& one) {
        const bool same_kind = rank.mig->profile.empty() || one.profile == rank.mig->profile;
        return one.uuid == rank.mig->uuid && one.gpu == rank.mig->gpu && same_kind;
      });
      if (there) continue;
      const std::string kind = rank.mig->profile.empty() ? "" : rank.mig->profile + ", ";
      return "GPU " + std::to_string(rank.mig->gpu) + " has no MIG device " + kind + rank.mig->uuid;
    }
  }
  return "";
}

// The advice where the layout lacks devices: those of the driver in place of those of the file. An
// instance can be asked for by its profile alone. Jobs on other hosts keep their places, without
// ranks.
std::string what_to_do(Layout layout, const Placement& placement, const Host& found) {
  for (size_t j = 0; j < layout.jobs.size(); ++j) {
    Share& share = *layout.jobs[j].share;
    const std::string& profile = placement.jobs[j].ranks.front().mig->profile;
    if (share.instance && !profile.empty()) share.profile = profile;
    share.instance.reset();
    std::erase_if(layout.jobs[j].instances,
                  [&](const Instance& instance) { return instance.host != found.name; });
  }
  try {
    take_mig_devices(layout, {found});
  } catch (const NotSupported& error) {
    return std::string(": ") + error.what();
  }
  return "; there are others that would do: give those (nvidia-smi -L), or leave \"mig\" of this "
         "host out of the file";
}

// This machine with what the driver reports now.
Host found_now(Host host, const std::string& nvml_library) {
  host.mig.clear();
  host.found.clear();
  return with_mig_devices(host, nvml_library);
}

// Where MIG divides the GPU, CUDA shows a job that wants all of it the first device.
void require_whole_gpus(const LaunchPlan& plan, size_t i, const Host& found) {
  for (const PlacedJob& job : plan.placements[i].jobs) {
    if (!job.share || job.share->mode == SharingMode::mig) continue;
    for (const PlacedRank& rank : job.ranks) {
      if (rank.host != found.name || !rank.gpu || !is_divided(found, *rank.gpu)) continue;
      throw NotSupported(plan.source + plan.file.layouts[i].source + ": GPU " +
                         std::to_string(*rank.gpu) + ": " + no_whole_gpu_reason(*rank.gpu));
    }
  }
}

bool needs_gpus(const Placement& placement, const std::string& host) {
  return std::ranges::any_of(placement.jobs, [&](const PlacedJob& job) {
    return job.share && std::ranges::any_of(job.ranks, [&](const PlacedRank& rank) {
             return rank.host == host && rank.gpu;
           });
  });
}

std::string differences_from(const std::string& config, const std::vector<Gpu>& gpus) {
  const MigConfig wanted = read_mig_config(config);
  std::string text;
  for (const std::string& one : mig_differences(wanted, gpus)) {
    text += (text.empty() ? "" : "; ") + one;
  }
  return text.empty() ? "" : text + "; an administrator applies it: " + apply_command(wanted);
}

}  // namespace

Host& with_mig_devices(Host& host, const std::string& nvml_library) {
  if (!is_this_machine(address_of(host)) || host.gpus == 0) return host;
  try {
    const std::vector<Gpu> gpus = gpus_in_order(nvml_library);
    for (int64_t i = 0; i < std::min<int64_t>(host.gpus, std::ssize(gpus)); ++i) {
      host.found.push_back({gpus[i].name, no_mig_of(gpus[i])});
      add_devices(gpus[i], i, host);
    }
    host.found.resize(host.gpus, {"", "the driver does not list this GPU"});
  } catch (const NotSupported& error) {
    host.found.assign(host.gpus, {"", error.what()});
  }
  return host;
}

void add_gpu_places(Host& host, const std::string& nvml_library) {
  if (!is_this_machine(address_of(host)) || host.gpus < 2) return;
  try {
    const std::vector<Gpu> gpus = gpus_in_order(nvml_library);
    for (const Gpu& gpu : gpus) host.places.push_back(place_of(gpu, gpus));
  } catch (const NotSupported&) {
    host.places.clear();  // a job takes the first
  }
}

bool is_divided(const Host& host, int64_t gpu) {
  return gpu < std::ssize(host.found) && host.found[gpu].no_mig.empty();
}

std::string no_whole_gpu_reason(int64_t gpu) {
  return "MIG is on, so that there is no whole GPU; an administrator turns it off: nvidia-smi -i " +
         std::to_string(gpu) + " -mig 0. `nearmetal report` of both reports compares them";
}

void settle_mig(LayoutFile& file, const std::optional<std::string>& config,
                const std::filesystem::path& path) {
  for (Layout& layout : file.layouts) {
    std::optional<std::string>& expected = layout.expect.mig_config;
    if (expected) expected = (path.parent_path() / *expected).string();
    if (config) expected = config;
  }
  for (Host& host : file.hosts) {
    const bool needed = std::ranges::any_of(
        file.layouts, [&](const Layout& layout) { return by_mig(layout, host.name); });
    if (needed && host.mig.empty() && host.found.empty()) with_mig_devices(host);
  }
}

void require_mig_devices(const LaunchPlan& plan, const std::string& nvml_library) {
  std::map<std::string, Host> found;
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    const Layout& layout = plan.file.layouts[i];
    for (const Host& planned : plan.file.hosts) {
      if (!needs_gpus(plan.placements[i], planned.name)) continue;
      if (!is_this_machine(address_of(planned))) continue;
      if (!found.contains(planned.name)) {
        found.emplace(planned.name, found_now(planned, nvml_library));
      }
      const Host& host = found.at(planned.name);
      const Placement& placement = plan.placements[i];
      require_whole_gpus(plan, i, host);
      const std::string why = missing_device(placement, host);
      if (why.empty()) continue;
      throw NotSupported(plan.source + layout.source + ": " + why +
                         what_to_do(layout, placement, host));
    }
    if (!layout.expect.mig_config) continue;
    const std::string place = plan.source + layout.source + "/expect/mig_config: ";
    for (const PlacedJob& job : plan.placements[i].jobs) {
      for (const PlacedRank& rank : job.ranks) {
        if (is_this_machine(rank.address)) continue;
        throw std::invalid_argument(place + "it can be checked on this machine alone, not on '" +
                                    rank.address + "'");
      }
    }
    const std::string why =
        differences_from(*layout.expect.mig_config, gpus_in_order(nvml_library));
    if (!why.empty()) throw NotSupported(place + why);
  }
}

}  // namespace nearmetal
