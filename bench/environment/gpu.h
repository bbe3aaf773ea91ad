// A GPU and how it is connected: by its backend, NVML and the kernel.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "bench/environment/nvml.h"
#include "models/program.h"
#include "reports/document/environment.h"

namespace nearmetal {

/// The UUID of a MIG device as NVML writes it; none: it is no such device. CUDA tells the same 16
/// bytes (cuDeviceGetUuid_v2: "If the device is in MIG mode, returns its MIG UUID which uniquely
/// identifies the subscribed MIG compute instance"), for backends to write like a GPU's.
std::optional<std::string> mig_uuid(const DeviceInfo& device);

/// The GPU as its backend describes it.
Gpu describe_gpu(const DeviceInfo& device);

/// The GPU with what NVML and the kernel report of it.
Gpu found_gpu(const DeviceInfo& device);

/// Adds what NVML reports of the GPU at `gpu.pci_id`; for a MIG device, which has the address of
/// its GPU, that of the GPU: power, clocks and links are not divided. Where it reports nothing, the
/// reason.
void add_nvml_facts(Gpu& gpu, const Nvml& nvml);

/// All GPUs that NVML lists, whether a backend can use them or not.
std::vector<Gpu> all_gpus(const Nvml& nvml, const std::filesystem::path& root);

}  // namespace nearmetal
