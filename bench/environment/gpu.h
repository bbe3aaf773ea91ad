// What a GPU is and how it is connected: by its backend, NVML and the kernel.
#pragma once

#include <filesystem>

#include "bench/environment/nvml.h"
#include "models/program.h"
#include "reports/document/environment.h"

namespace nearmetal {

/// The UUID of a MIG device as NVML writes it; empty: it is none. CUDA tells the same 16 bytes
/// (cuDeviceGetUuid_v2: "If the device is in MIG mode, returns its MIG UUID which uniquely
/// identifies the subscribed MIG compute instance"), for backends to write like a GPU's.
std::string mig_uuid(const DeviceInfo& device);

/// The GPU as its backend describes it.
Gpu describe_gpu(const DeviceInfo& device);

/// With what NVML and the kernel tell of it.
Gpu found_gpu(const DeviceInfo& device);

/// What the kernel tells of the GPU at `gpu.pci_id`.
void add_kernel_facts(Gpu& gpu, const std::filesystem::path& root);

/// What NVML tells of the GPU at `gpu.pci_id`; of a MIG device, which has the address of its GPU,
/// of that: power, clocks and links are not divided. Where it does not, the reason.
void add_nvml_facts(Gpu& gpu, const Nvml& nvml);
/// The same of a machine without NVML: why.
void leave_nvml_facts(Gpu& gpu, const Unknown& why);

/// All GPUs that NVML lists, whether a backend can use them or not.
std::vector<Gpu> all_gpus(const Nvml& nvml, const std::filesystem::path& root);

}  // namespace nearmetal
