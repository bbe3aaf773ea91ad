// Whether this system is bare metal, a virtual machine or a container, by all that shows it.
#pragma once

#include <filesystem>
#include <functional>

#include "reports/document/environment.h"

namespace nearmetal {

/// Where evidence comes from that is in no file. Tests put answers of their own here.
struct Probes {
  /// Leaf 0x40000000 of CPUID, which is a hypervisor's where leaf 1 says that there is one.
  std::function<Maybe<std::string>()> cpuid_signature;
  /// What systemd-detect-virt says when given --vm or --container.
  std::function<Maybe<std::string>(const char* question)> detect_virt;
  /// A variable of the environment; empty: not set.
  std::function<std::string(const char* name)> variable;
};

/// Of this machine.
Probes real_probes();

/// `hypervisor_cpu_flag` as the kernel shows it. `root` is the folder of the system's files.
Virtualisation find_virtualisation(const std::filesystem::path& root, const Probes& probes,
                                   const Maybe<bool>& hypervisor_cpu_flag);

/// Where what was found contradicts what the user says that it is; empty: nowhere.
std::string contradiction(MachineKind claim, const Virtualisation& found);

}  // namespace nearmetal
