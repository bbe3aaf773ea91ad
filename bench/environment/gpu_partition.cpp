#include <algorithm>
#include <array>

#include "bench/environment/gpu.h"
#include "comm/layout/gpu_profiles.h"

namespace nearmetal {
namespace {

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
  const std::string profile = mig_profile_in(*name);
  if (profile.empty()) return Unknown{"its name, " + *name + ", says no profile"};
  return profile;
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
  unsigned now = 0, pending = 0;
  const std::string why = nvml.call("nvmlDeviceGetMigMode", device, &now, &pending);
  gpu.mig = why.empty() ? Maybe<bool>(now != 0) : Maybe<bool>(Unknown{why});
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
  if (!gpu.virtualisation || *gpu.virtualisation != "vgpu") {
    const Unknown why{gpu.virtualisation ? "it is no vGPU" : gpu.virtualisation.reason};
    gpu.vgpu_profile = gpu.vgpu_licence = gpu.vgpu_scheduler = why;
    return;
  }
  const std::string profile = vgpu_profile_in(gpu.name);
  gpu.vgpu_profile = Unknown{"its name, " + gpu.name + ", says no profile"};
  if (!profile.empty()) gpu.vgpu_profile = profile;
  gpu.vgpu_licence = licence_of(nvml, device);
  gpu.vgpu_scheduler = scheduler_of(nvml, device);
}

}  // namespace

void add_partition(Gpu& gpu, const Nvml& nvml, NvmlDevice device) {
  constexpr std::array modes = {"none", "passthrough", "vgpu", "host-vgpu", "host-vsga"};
  gpu.virtualisation =
      name_in(nvml.ask<unsigned>("nvmlDeviceGetVirtualizationMode", device), modes);
  add_mig(gpu, nvml, device);
  add_vgpu(gpu, nvml, device);
}

}  // namespace nearmetal
