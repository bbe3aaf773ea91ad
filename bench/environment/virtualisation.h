// The signs that tell a virtual machine and a container from bare metal.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "reports/document/environment.h"

namespace nearmetal {

/// Where evidence comes from that is in no file. Tests put answers of their own here.
struct SystemQueries {
  /// Leaf 0x40000000 of CPUID, which is a hypervisor's where leaf 1 says that there is one.
  std::function<Maybe<std::string>()> cpuid_signature;
  /// The answer of systemd-detect-virt to --vm or --container.
  std::function<Maybe<std::string>(const char* question)> detect_virt;
  /// A variable of the environment; empty: not set.
  std::function<std::string(const char* name)> variable;
  /// By leaf 0x40000002 of CPUID, where the hypervisor is Hyper-V.
  std::function<Maybe<std::string>()> hyper_v_version{};
};

/// The queries of this machine.
SystemQueries system_queries();

/// `hypervisor_cpu_flag` as the kernel shows it. `root` is the folder of the system's files.
Virtualisation find_virtualisation(const std::filesystem::path& root, const SystemQueries& queries,
                                   const Maybe<bool>& hypervisor_cpu_flag);

/// Whether a module that lets NICs read the memory of GPUs (GPUDirect RDMA) is loaded:
/// nvidia_peermem, or its forerunner nv_peer_mem.
Maybe<bool> peer_memory_module(const std::filesystem::path& root);

/// Whether the memory of GPUs can be shared with NICs as a dma-buf, by the flavour of the driver's
/// module and the version of the kernel.
Maybe<bool> dma_buf_by_kernel(const std::filesystem::path& root);

/// Where what was found contradicts what the user says that it is, if anywhere.
std::optional<std::string> contradiction(MachineKind claim, const Environment& found);

/// The file of a library of this process that has a function which programs take for that of
/// `library`, loaded as well: "/usr/local/vgpu/libvgpu.so"; none.
Maybe<std::string> interposer(const char* library = "libcuda.so.1",
                              const char* function = "cuMemAlloc_v2");

}  // namespace nearmetal
