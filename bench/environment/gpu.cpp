#include "bench/environment/gpu.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "base/errors.h"
#include "bench/environment/rdma.h"
#include "bench/environment/system_files.h"
#include "bench/environment/virtualisation.h"
#include "comm/layout/gpu_profiles.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

// Numbers of nvml.h, which are part of its binary interface.
enum : unsigned { p2p_read = 0, p2p_nvlink = 2, p2p_atomics = 3 };

// nvmlBAR1Memory_t
struct Bar1Memory {
  unsigned long long total, free, used;
};
// nvmlPciInfo_t
struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};

Maybe<int64_t> number(const Maybe<unsigned>& value) { return scaled<int64_t>(value, 1); }

template <size_t count>
Maybe<std::string> name_in(const Maybe<unsigned>& value,
                           const std::array<const char*, count>& names) {
  if (!value) return Unknown{value.reason};
  if (*value >= count) return Unknown{"NVML says " + std::to_string(*value)};
  return std::string(names[*value]);
}

template <class T>
Maybe<T> known(const T& value) {
  if (value == T{}) return Unknown{"the backend does not say"};
  return value;
}

void add_link(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  const auto ask = [&](const char* function) {
    return number(nvml.ask<unsigned>(function, device));
  };
  gpu.link_generation = ask("nvmlDeviceGetCurrPcieLinkGeneration");
  gpu.link_width = ask("nvmlDeviceGetCurrPcieLinkWidth");
  gpu.largest_link_generation = ask("nvmlDeviceGetMaxPcieLinkGeneration");
  gpu.largest_link_width = ask("nvmlDeviceGetMaxPcieLinkWidth");
  const auto bar1 = nvml.ask<Bar1Memory>("nvmlDeviceGetBAR1MemoryInfo", device);
  gpu.bar1_bytes = Unknown{bar1.reason};
  if (bar1) gpu.bar1_bytes = static_cast<int64_t>(bar1->total);
}

// Whether a mode is on, and whether the next reset changes that.
void add_mode(Maybe<bool>& is_on, Maybe<bool>& change_pending, const Nvml& nvml,
              const char* function, NvmlDevice device) {
  unsigned now = 0, pending = 0;
  const std::string why = nvml.call(function, device, &now, &pending);
  is_on = change_pending = Unknown{why};
  if (!why.empty()) return;
  is_on = now != 0;
  change_pending = now != pending;
}

void add_memory_health(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  add_mode(gpu.ecc, gpu.ecc_change_pending, nvml, "nvmlDeviceGetEccMode", device);
  // Ampere and later remap rows; before, pages were retired.
  unsigned corrected = 0, uncorrected = 0, waiting = 0, failed = 0;
  const std::string no_rows =
      nvml.call("nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &waiting, &failed);
  gpu.memory_repair_pending =
      no_rows.empty() ? Maybe<bool>(waiting != 0 || failed != 0)
                      : truth(nvml.ask<unsigned>("nvmlDeviceGetRetiredPagesPendingStatus", device));
}

void add_power_and_clocks(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  const auto watts = [&](const char* function) {
    return scaled(nvml.ask<unsigned>(function, device), 1e-3);
  };
  const auto hertz = [&](const char* function, unsigned clock) {
    return scaled<int64_t>(nvml.ask<unsigned>(function, device, clock), 1'000'000);
  };
  gpu.power_limit_watts = watts("nvmlDeviceGetEnforcedPowerLimit");
  gpu.default_power_limit_watts = watts("nvmlDeviceGetPowerManagementDefaultLimit");
  gpu.largest_sm_hertz = hertz("nvmlDeviceGetMaxClockInfo", clock_sm);
  gpu.largest_memory_hertz = hertz("nvmlDeviceGetMaxClockInfo", clock_memory);
  gpu.application_sm_hertz = hertz("nvmlDeviceGetApplicationsClock", clock_sm);
}

void add_nvlinks(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  int64_t active = 0, inactive = 0;
  for (unsigned link = 0; link < most_nvlinks; ++link) {
    const auto state = nvml.ask<unsigned>("nvmlDeviceGetNvLinkState", device, link);
    if (!state && link == 0) {
      gpu.active_nvlinks = gpu.inactive_nvlinks = Unknown{state.reason};
      return;
    }
    if (!state) break;  // beyond the last
    (*state != 0 ? active : inactive) += 1;
  }
  gpu.active_nvlinks = active;
  gpu.inactive_nvlinks = inactive;
}

// The IDs of device and board as in device filters of mig-parted.
void add_ids(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  const auto info = nvml.ask<PciInfo>("nvmlDeviceGetPciInfo_v3", device);
  gpu.device_id = gpu.subsystem_id = Unknown{info.reason};
  if (!info) return;
  const auto text_of = [](unsigned id) {
    char text[16];
    return std::string(text, std::snprintf(text, sizeof text, "0x%08X", id));
  };
  gpu.device_id = text_of(info->device_id);
  gpu.subsystem_id = text_of(info->subsystem_id);
}

Maybe<std::string> pci_id_of(const Nvml& nvml, NvmlDevice device) {
  const auto info = nvml.ask<PciInfo>("nvmlDeviceGetPciInfo_v3", device);
  if (!info) return Unknown{info.reason};
  return std::string(info->id, strnlen(info->id, sizeof info->id));
}

void add_peers(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  gpu.peers.clear();
  const auto count = nvml.ask<unsigned>("nvmlDeviceGetCount_v2");
  const auto own = pci_id_of(nvml, device);
  for (unsigned i = 0; count && i < *count; ++i) {
    const auto other = nvml.ask<NvmlDevice>("nvmlDeviceGetHandleByIndex_v2", i);
    if (!other) continue;
    const auto id = pci_id_of(nvml, *other);
    if (!id || id == own) continue;
    const auto works = [&](unsigned capability) -> Maybe<bool> {
      const auto status = nvml.ask<unsigned>("nvmlDeviceGetP2PStatus", device, *other, capability);
      if (!status) return Unknown{status.reason};
      return *status == 0;
    };
    gpu.peers.push_back({*id, works(p2p_read), works(p2p_atomics), works(p2p_nvlink)});
  }
}

// nvmlDeviceAttributes_t
struct Attributes {
  unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
  unsigned gpu_slices, compute_slices;
  unsigned long long memory_mebibytes;
};

// The profile by its name (see mig_profile_in()), which says it whatever the attributes are.
Maybe<std::string> profile_of(const Nvml& nvml, NvmlDevice instance) {
  const Maybe<std::string> name = nvml.text("nvmlDeviceGetName", instance);
  if (!name) return Unknown{name.reason};
  if (const auto profile = mig_profile_in(*name)) return *profile;
  return Unknown{"its name, " + *name + ", says no profile"};
}

MigInstance describe_instance(const Nvml& nvml, NvmlDevice instance) {
  MigInstance found;
  found.uuid = nvml.text("nvmlDeviceGetUUID", instance);
  found.profile = profile_of(nvml, instance);
  const auto attributes = nvml.ask<Attributes>("nvmlDeviceGetAttributes_v2", instance);
  found.multiprocessors = found.gpu_slices = found.memory_bytes = Unknown{attributes.reason};
  if (attributes) {
    found.multiprocessors = attributes->multiprocessors;
    found.gpu_slices = attributes->gpu_slices;
    found.memory_bytes = static_cast<int64_t>(attributes->memory_mebibytes << 20);
  }
  return found;
}

void add_mig(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  add_mode(gpu.mig, gpu.mig_change_pending, nvml, "nvmlDeviceGetMigMode", device);
  gpu.mig_instances.clear();
  if (!gpu.mig || !*gpu.mig) return;
  const auto most = nvml.ask<unsigned>("nvmlDeviceGetMaxMigDeviceCount", device);
  for (unsigned i = 0; most && i < *most; ++i) {
    const auto instance = nvml.ask<NvmlDevice>("nvmlDeviceGetMigDeviceHandleByIndex", device, i);
    if (instance) gpu.mig_instances.push_back(describe_instance(nvml, *instance));
  }
}

Maybe<std::string> licence_of(const Nvml& nvml, NvmlDevice device) {
  // nvmlGridLicensableFeatures_t: 2 numbers, then up to 3 features of 2 numbers, 2 texts of 128
  // bytes, a number and a date of 16 bytes.
  struct Feature {
    unsigned code, licensed;
    char information[128], product[128];
    unsigned enabled, expiry[4];
  };
  struct Features {
    int supported;
    unsigned count;
    std::array<Feature, 3> features;
  };
  static_assert(sizeof(Feature) == 284);
  const auto answer = nvml.ask<Features>("nvmlDeviceGetGridLicensableFeatures_v4", device);
  if (!answer) return Unknown{answer.reason};
  const auto end = answer->features.begin() + std::min(answer->count, 3u);
  const bool licensed = std::any_of(answer->features.begin(), end,
                                    [](const Feature& feature) { return feature.licensed != 0; });
  return std::string(licensed ? "licensed" : "unlicensed");
}

// The host's driver tells its guests mostly nothing of it.
Maybe<std::string> scheduler_of(const Nvml& nvml, NvmlDevice device) {
  // nvmlVgpuSchedulerGetState_t: policy (NVML_VGPU_SCHEDULER_POLICY_...), mode, parameters.
  struct State {
    unsigned policy, mode, parameters[4];
  };
  constexpr std::array policies = {"unknown", "best effort", "equal share", "fixed share"};
  const auto state = nvml.ask<State>("nvmlDeviceGetVgpuSchedulerState", device);
  if (!state) return Unknown{state.reason};
  if (state->policy == 0) return Unknown{"NVML does not know it"};
  return name_in(Maybe<unsigned>(state->policy), policies);
}

void add_vgpu(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  constexpr std::array modes = {"none", "passthrough", "vgpu", "host-vgpu", "host-vsga"};
  gpu.virtualisation =
      name_in(nvml.ask<unsigned>("nvmlDeviceGetVirtualizationMode", device), modes);
  if (!gpu.virtualisation || *gpu.virtualisation != "vgpu") {
    const Unknown why{gpu.virtualisation ? "it is no vGPU" : gpu.virtualisation.reason};
    gpu.vgpu_profile = gpu.vgpu_licence = gpu.vgpu_scheduler = why;
    return;
  }
  gpu.vgpu_profile = Unknown{"its name, " + gpu.name + ", says no profile"};
  if (const auto profile = vgpu_profile_in(gpu.name)) gpu.vgpu_profile = *profile;
  gpu.vgpu_licence = licence_of(nvml, device);
  gpu.vgpu_scheduler = scheduler_of(nvml, device);
}

// One answer for all GPUs of the system.
Maybe<std::string> confidential_computing(const Nvml& nvml) {
  // nvmlConfComputeSystemState_t.
  struct State {
    unsigned environment, feature, devtools;
  };
  const auto state = nvml.ask<State>("nvmlSystemGetConfComputeState");
  if (!state) return Unknown{state.reason};
  if (state->devtools != 0) return std::string("devtools");
  return std::string(state->feature != 0 ? "on" : "off");
}

void add_device_facts(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  gpu.serial = nvml.text("nvmlDeviceGetSerial", device);
  gpu.vbios = nvml.text("nvmlDeviceGetVbiosVersion", device);
  gpu.persistence = truth(nvml.ask<unsigned>("nvmlDeviceGetPersistenceMode", device));
  constexpr std::array modes = {"default", "exclusive-thread", "prohibited", "exclusive-process"};
  gpu.compute_mode = name_in(nvml.ask<unsigned>("nvmlDeviceGetComputeMode", device), modes);
  add_link(gpu, nvml, device);
  add_memory_health(gpu, nvml, device);
  add_power_and_clocks(gpu, nvml, device);
  add_ids(gpu, nvml, device);
  add_mig(gpu, nvml, device);
  add_vgpu(gpu, nvml, device);
  gpu.confidential = confidential_computing(nvml);
  add_nvlinks(gpu, nvml, device);
  add_peers(gpu, nvml, device);
}

void add_kernel_facts(Gpu& gpu, const fs::path& root) {
  if (!gpu.pci_id) {
    const Unknown why{"its address on the PCI bus is not known"};
    gpu.numa_node = gpu.iommu_group = gpu.own_link_generation = why;
    gpu.cpu_affinity = gpu.iommu_type = why;
    gpu.virtual_function = gpu.ats_capable = gpu.ats = gpu.acs_redirect = why;
    return;
  }
  const fs::path folder = pci_folder(root, *gpu.pci_id);
  add_pci_facts(gpu, folder);
  gpu.cpu_affinity = first_line(folder / "local_cpulist");
  gpu.own_link_generation = link_generation_in(folder / "max_link_speed");
  for (GpuPeer& peer : gpu.peers) {
    peer.distance = pci_distance(root, folder, pci_folder(root, peer.pci_id));
  }
  if (!gpu.dma_buf) gpu.dma_buf = dma_buf_by_kernel(root);
  gpu.nics = nic_paths(gpu, root);
}

}  // namespace

std::optional<std::string> mig_uuid(const DeviceInfo& device) {
  const size_t dash = device.uuid.find('-');
  if (!mig_profile_in(device.name) || dash == device.uuid.npos) return std::nullopt;
  return "MIG" + device.uuid.substr(dash);
}

Gpu describe_gpu(const DeviceInfo& device) {
  Gpu gpu;
  gpu.name = device.name;
  const std::optional<std::string> mig = mig_uuid(device);
  gpu.uuid = known(mig.value_or(device.uuid));
  gpu.mig_profile = Unknown{"it is no MIG device"};
  if (mig) gpu.mig_profile = *mig_profile_in(device.name);
  gpu.pci_id = known(device.pci_id);
  gpu.memory_bytes = known<int64_t>(device.memory_bytes);
  gpu.multiprocessors = known<int64_t>(device.multiprocessors);
  gpu.compute_capability = known(device.compute_capability);
  gpu.driver_version = known(device.driver_version);
  gpu.dma_buf = Unknown{"the driver does not say"};
  if (device.dma_buf) gpu.dma_buf = *device.dma_buf;
  return gpu;
}

Gpu found_gpu(const DeviceInfo& device) {
  Gpu gpu = describe_gpu(device);
  try {
    add_nvml_facts(gpu, Nvml());
  } catch (const NotSupported& error) {
    add_device_facts(gpu, Nvml(Unknown{error.what()}), nullptr);
  }
  add_kernel_facts(gpu, "/");
  return gpu;
}

void add_nvml_facts(Gpu& gpu, const Nvml& nvml) {
  const Maybe<NvmlDevice> found =
      gpu.pci_id ? nvml.device_at(*gpu.pci_id)
                 : Maybe<NvmlDevice>(Unknown{"its address on the PCI bus is not known"});
  if (!found) return add_device_facts(gpu, Nvml(Unknown{found.reason}), nullptr);
  if (!gpu.driver_version) gpu.driver_version = nvml.driver_version();
  add_device_facts(gpu, nvml, *found);
}

std::vector<Gpu> all_gpus(const Nvml& nvml, const fs::path& root) {
  std::vector<Gpu> gpus;
  const auto count = nvml.ask<unsigned>("nvmlDeviceGetCount_v2");
  for (unsigned i = 0; count && i < *count; ++i) {
    constexpr const char* find = "nvmlDeviceGetHandleByIndex_v2";
    NvmlDevice device = nullptr;
    Gpu& gpu = gpus.emplace_back();
    gpu.lost_status = nvml.status_of(find, i, &device);
    if (gpu.lost_status != 0) {
      gpu.name = "GPU " + std::to_string(i);
      gpu.lost = nvml.problem(find, gpu.lost_status);
      continue;
    }
    gpu.name = nvml.text("nvmlDeviceGetName", device).value.value_or("GPU " + std::to_string(i));
    gpu.uuid = nvml.text("nvmlDeviceGetUUID", device);
    gpu.pci_id = pci_id_of(nvml, device);
    gpu.mig_profile = Unknown{"it is no MIG device"};
    add_nvml_facts(gpu, nvml);
    add_kernel_facts(gpu, root);
  }
  return gpus;
}

}  // namespace nearmetal
