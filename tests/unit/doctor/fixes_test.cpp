// The fixes of findings, on each kind of machine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "reports/conditions/condition.h"
#include "tests/support/healthy_checkup.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Fixes, AdviceIsForWhatABackendLacks) {
  Checkup checkup = healthy();
  const std::pair<Obstacle, const char*> fixes[] = {{Obstacle::not_built, "build with this"},
                                                    {Obstacle::not_loaded, "LD_LIBRARY_PATH"},
                                                    {Obstacle::no_device, "install the driver"}};
  for (const auto& [obstacle, fix] : fixes) {
    checkup.backends["cuda"] = {obstacle, "?"};
    EXPECT_THAT(fix_of(checkup, "backend_unusable"), HasSubstr(fix));
  }
  checkup.backends["cuda"] = {Obstacle::old_driver, "the driver takes CUDA 12.2", "a package"};
  EXPECT_EQ(fix_of(checkup, "driver_too_old"), "a package");
  EXPECT_EQ(worst(checkup), "blocker driver_too_old");
}

// The fix of what breaks it, on a machine of each kind.
struct Fixes {
  std::string kvm, esxi, bare_metal, unknown;
};

Fixes fixes_of(Checkup checkup, const std::string& code) {
  Virtualisation& found = checkup.environment.virtualisation;
  Fixes fixes;
  found.machine = Unknown{"no sign"};
  fixes.unknown = fix_of(checkup, code);
  found.machine = MachineKind::bare_metal;
  fixes.bare_metal = fix_of(checkup, code);
  found.machine = MachineKind::vm;
  found.hypervisor = std::string("kvm");
  fixes.kvm = fix_of(checkup, code);
  found.hypervisor = std::string("vmware");
  fixes.esxi = fix_of(checkup, code);
  return fixes;
}

TEST(Fixes, AStatusOfNvmlHasItsRemedy) {
  const auto fix_at = [](int status, const char* container) {
    Checkup checkup = healthy();
    checkup.environment.virtualisation.container = std::string(container);
    checkup.environment.gpus[1].lost = "not reached";
    checkup.environment.gpus[1].lost_status = status;
    const std::string of_gpu = fix_of(checkup, "gpu_lost");
    checkup.nvml = Unknown{"NVML does not start"};
    checkup.nvml_status = status;
    const std::string code = status == nvml_versions_differ ? "driver_mismatch" : "no_nvml";
    EXPECT_EQ(fix_of(checkup, code), of_gpu) << status;
    return of_gpu;
  };
  EXPECT_THAT(fix_at(nvml_no_permission, "none"), HasSubstr("/dev/nvidia*"));
  EXPECT_THAT(fix_at(nvml_driver_not_loaded, "none"), HasSubstr("modprobe nvidia"));
  EXPECT_THAT(fix_at(nvml_not_found, "docker"), HasSubstr("NVIDIA_DRIVER_CAPABILITIES"));
  EXPECT_THAT(fix_at(nvml_gpu_is_lost, "none"), HasSubstr("Xid 79"));
  EXPECT_THAT(fix_at(nvml_versions_differ, "none"), StartsWith("restart the machine"));
  EXPECT_THAT(fix_at(nvml_versions_differ, "docker"), StartsWith("on the host: restart"));
  EXPECT_THAT(fix_at(nvml_unknown_error, "docker"), HasSubstr("daemon-reload"));
  EXPECT_THAT(fix_at(nvml_unknown_error, "none"), HasSubstr("NVRM"));
}

TEST(Fixes, WhatIsTheSameForSeveralKindsIsSaidOnce) {
  const Checkup unknown;
  EXPECT_EQ(advice_for(unknown.environment, {"a", "a", "a"}), "a");
  EXPECT_EQ(advice_for(unknown.environment, {"a", "a", "b"}), "in a VM: a; on bare metal: b");
  EXPECT_EQ(advice_for(unknown.environment, {"a", "b", "c"}),
            "with KVM: a; with ESXi: b; on bare metal: c");
}

TEST(Fixes, LimitsOfAContainerAreSetByWhoeverStartsIt) {
  Checkup checkup = healthy();
  checkup.environment.limits.shared_memory_bytes = checkup.environment.limits.locked_memory_bytes =
      int64_t{8} << 20;
  Maybe<std::string>& container = checkup.environment.virtualisation.container;
  for (const char* code : {"small_shared_memory", "small_locked_memory"}) {
    container = std::string("docker");
    EXPECT_THAT(fix_of(checkup, code), HasSubstr("docker: --")) << code;
    EXPECT_THAT(fix_of(checkup, code), Not(HasSubstr("VM"))) << code;
    container = std::string("none");
    const Fixes fixes = fixes_of(checkup, code);
    EXPECT_THAT(fixes.bare_metal, Not(HasSubstr("docker"))) << code;
    EXPECT_THAT(fixes.bare_metal, Not(HasSubstr("VM"))) << code;
    EXPECT_THAT(fixes.esxi, HasSubstr("in the VM")) << code;
    container = Unknown{"not told"};
    EXPECT_THAT(fix_of(checkup, code), HasSubstr("; in a container: docker: --")) << code;
  }
}

TEST(Fixes, FixesOfGpusAreForTheKindOfMachine) {
  Checkup checkup = healthy();
  Gpu& gpu = checkup.environment.gpus[0];
  gpu.link_width = 8;
  gpu.numa_node = -1;
  gpu.inactive_nvlinks = 2;
  gpu.peers[0].reads = false;
  gpu.largest_link_generation = 3;
  gpu.own_link_generation = 5;
  const std::map<std::string, Fixes> expected = {
      {"narrow_link", {"x-width=16", "on the host: reseat", "reseat it", "on bare metal: reseat"}},
      {"slow_slot", {"on the host: ", "on the host: ", "look at", "in a VM: on the host: "}},
      {"numa_unknown", {"pxb-pcie", "vSphere 8", "look for NUMA", "with ESXi: "}},
      {"nvlink_down", {"partition", "NVSwitches", "look at nvidia-smi nvlink -s", "with KVM: "}},
      {"peer_access_refused",
       {"x-nv-gpudirect-clique", "pciPassthru.allowP2P", "look at nvidia-smi topo -p2p r",
        "with KVM: "}},
  };
  for (const auto& [code, words] : expected) {
    const Fixes fixes = fixes_of(checkup, code);
    EXPECT_THAT(fixes.kvm, HasSubstr(words.kvm)) << code;
    EXPECT_THAT(fixes.esxi, HasSubstr(words.esxi)) << code;
    EXPECT_THAT(fixes.bare_metal, testing::StartsWith(words.bare_metal)) << code;
    EXPECT_THAT(fixes.unknown, HasSubstr(words.unknown)) << code;
  }
}

TEST(Fixes, BoardsWithNvLinksAreKnownByName) {
  const auto code_of = [](const std::string& name) {
    Checkup checkup = healthy();
    checkup.environment.virtualisation.machine = MachineKind::vm;
    for (Gpu& gpu : checkup.environment.gpus) {
      gpu.name = name;
      gpu.active_nvlinks = Unknown{"not told"};
      gpu.peers[0].nvlink = false;
    }
    return worst(checkup);
  };
  for (const char* name :
       {"NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200",
        "NVIDIA GB200", "NVIDIA B300 SXM6 AC", "NVIDIA H20", "GRID A100X-40C", "NVIDIA A100DX-80C",
        "NVIDIA H100XM-80C", "NVIDIA H200X-141C"}) {
    EXPECT_EQ(code_of(name), "warning nvlink_lost") << name;
  }
  for (const char* name :
       {"NVIDIA H200 NVL", "NVIDIA H100 NVL", "NVIDIA A100 80GB PCIe", "NVIDIA L40S",
        "NVIDIA GH200 480GB", "NVIDIA A100X", "NVIDIA H100-80C", "NVIDIA H100XM-40C"}) {
    EXPECT_EQ(code_of(name), "note peers_without_nvlink") << name;
  }
}

TEST(Fixes, WithoutNvLinkTheFixDependsOnTheMachine) {
  Checkup checkup = healthy();
  checkup.environment.gpus[0].name = checkup.environment.gpus[1].name = "NVIDIA L40S";
  for (Gpu& gpu : checkup.environment.gpus) {
    gpu.active_nvlinks = 0;
    gpu.peers[0].nvlink = false;
  }
  checkup.environment.virtualisation.machine = MachineKind::vm;
  EXPECT_THAT(fix_of(checkup, "peers_without_nvlink"), HasSubstr("through to one VM"));
  checkup.environment.virtualisation.machine = MachineKind::bare_metal;
  EXPECT_THAT(fix_of(checkup, "peers_without_nvlink"), HasSubstr("nvidia-smi nvlink -s"));
}

}  // namespace
}  // namespace nearmetal
