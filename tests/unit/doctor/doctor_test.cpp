#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/doctor/advice.h"
#include "bench/doctor/diagnose.h"
#include "bench/environment/child_output.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;

// A machine on which nothing is wrong.
Checkup healthy() {
  Checkup checkup;
  checkup.gpu_device_files = true;
  checkup.nvml = std::string("580.159.03");
  checkup.environment.virtualisation.nvidia_kernel_module = std::string("580.159.03");
  checkup.environment.limits.shared_memory_bytes = int64_t{8} << 30;
  checkup.environment.limits.locked_memory_bytes = Unknown{"no limit is set"};
  checkup.environment.limits.open_files = 65536;
  checkup.environment.processor.governor = std::string("performance");
  checkup.backends = {{"cpu", {}}, {"cuda", {}}};
  checkup.mpi = MpiLaunch{.status = 0, .ranks = 2, .text = ""};
  checkup.plan_cache_writable = true;
  checkup.free_disk_bytes = int64_t{10} << 30;
  checkup.clock_synchronised = true;
  checkup.gnuplot = true;
  for (int i = 0; i < 2; ++i) {
    Gpu gpu;
    gpu.name = "NVIDIA H200";
    gpu.persistence = true;
    gpu.ecc_change_pending = gpu.memory_repair_pending = false;
    gpu.link_width = gpu.largest_link_width = 16;
    gpu.numa_node = 0;
    gpu.active_nvlinks = 18;
    gpu.inactive_nvlinks = 0;
    gpu.peers = {{"0000:0" + std::to_string(1 - i) + ":00.0", true, true, true}};
    checkup.gpus.push_back(gpu);
    checkup.gpus_now.push_back({});
  }
  return checkup;
}

// "severity code" of the finding that is not ok; of several, the first.
std::string worst(const Checkup& checkup) {
  for (const Finding& finding : diagnose(checkup)) {
    if (finding.severity == Urgency::ok) continue;
    EXPECT_NE(finding.why, "") << finding.code;
    EXPECT_NE(finding.fix, "") << finding.code;
    return std::string(to_string(finding.severity)) + " " + finding.code;
  }
  return "";
}

TEST(Doctor, FindsNothingOnAHealthyMachine) {
  EXPECT_EQ(worst(healthy()), "");
  EXPECT_GE(diagnose(healthy()).size(), 6) << "and says what it looked at";
}

TEST(Doctor, FindsEachFault) {
  using Fault = std::pair<const char*, void (*)(Checkup&)>;
  const Fault faults[] = {
      {"note no_gpu", [](Checkup& c) { c.gpu_device_files = false; }},
      {"blocker no_nvml", [](Checkup& c) { c.nvml = Unknown{"no NVML: not found"}; }},
      {"blocker no_gpu_listed", [](Checkup& c) { c.gpus.clear(); }},
      {"blocker driver_mismatch",
       [](Checkup& c) {
         c.environment.virtualisation.nvidia_kernel_module = std::string("570.1");
       }},
      {"blocker backend_unusable",
       [](Checkup& c) {
         c.backends["cuda"] = {Obstacle::not_loaded, "no libcudnn.so.9"};
       }},
      {"note backend_unusable",
       [](Checkup& c) {
         c.backends["cpu"] = {Obstacle::not_loaded, "no libdnnl.so.2"};
       }},
      {"blocker no_mpi", [](Checkup& c) { c.mpi.reset(); }},
      {"note no_mpi",
       [](Checkup& c) {
         c.mpi.reset();
         c.gpus.pop_back();
       }},
      {"blocker no_mpi",
       [](Checkup& c) {
         c.mpi.reset();
         c.gpus.pop_back();
         c.layout = LayoutCheck{"layouts.json", 1, {}};
       }},
      {"note no_gnuplot", [](Checkup& c) { c.gnuplot = false; }},
      {"blocker mpi_launch", [](Checkup& c) { c.mpi->ranks = 1; }},
      {"blocker mpi_launch", [](Checkup& c) { c.mpi->status.reset(); }},
      {"blocker nccl_start",
       [](Checkup& c) { c.nccl = MpiLaunch{.status = 6, .text = "NCCL: unhandled"}; }},
      {"blocker nccl_start", [](Checkup& c) { c.nccl = MpiLaunch{}; }},
      {"warning nccl_start",
       [](Checkup& c) { c.nccl = MpiLaunch{.status = 8, .text = "no module"}; }},
      {"blocker hosts_untried",
       [](Checkup& c) {
         c.host_names = {"vm0", "vm1"};
       }},
      {"blocker hosts_exchange",
       [](Checkup& c) {
         c.host_names = {"vm0", "vm1"};
         c.hosts = MpiLaunch{};
       }},
      {"blocker layout",
       [](Checkup& c) {
         c.layout = LayoutCheck{"l.json", 1, {"l.json: /layouts/0: no GPU 2"}};
       }},
      {"note network_untried",
       [](Checkup& c) {
         c.layout = LayoutCheck{"l.json", 1, {}};
       }},
      {"warning vgpu_unlicensed",
       [](Checkup& c) { c.gpus[0].vgpu_licence = std::string("unlicensed"); }},
      {"warning gpu_in_use", [](Checkup& c) { c.gpus_now[1].processes = 1; }},
      {"note persistence_off", [](Checkup& c) { c.gpus[0].persistence = false; }},
      {"warning ecc_pending", [](Checkup& c) { c.gpus[0].ecc_change_pending = true; }},
      {"warning memory_repair_pending", [](Checkup& c) { c.gpus[0].memory_repair_pending = true; }},
      {"blocker compute_prohibited",
       [](Checkup& c) { c.gpus[0].compute_mode = std::string("prohibited"); }},
      {"note clocks_set",
       [](Checkup& c) {
         c.gpus[0].application_sm_hertz = 1'200'000'000;
         c.gpus[0].largest_sm_hertz = 1'980'000'000;
       }},
      {"warning power_limited",
       [](Checkup& c) {
         c.gpus[0].power_limit_watts = 400.;
         c.gpus[0].default_power_limit_watts = 700.;
       }},
      {"warning throttled_now", [](Checkup& c) { c.gpus_now[0].throttle_bits = 0x40; }},
      {"warning narrow_link", [](Checkup& c) { c.gpus[0].link_width = 8; }},
      {"note numa_unknown", [](Checkup& c) { c.gpus[0].numa_node = -1; }},
      {"warning nvlink_down", [](Checkup& c) { c.gpus[0].inactive_nvlinks = 2; }},
      {"warning peer_access_refused", [](Checkup& c) { c.gpus[0].peers[0].reads = false; }},
      {"note peers_without_nvlink", [](Checkup& c) { c.gpus[0].peers[0].nvlink = false; }},
      {"warning acs_redirect",
       [](Checkup& c) {
         c.gpus[0].peers[0].nvlink = false;
         c.gpus[1].acs_redirect = true;
       }},
      {"note acs_unknown",
       [](Checkup& c) {
         c.gpus[0].peers[0].nvlink = false;
         c.gpus[0].peers[0].distance = PciDistance::pxb;
         c.gpus[0].acs_redirect = Unknown{"not readable"};
       }},
      {"warning small_shared_memory",
       [](Checkup& c) { c.environment.limits.shared_memory_bytes = 64 << 20; }},
      {"note small_locked_memory",
       [](Checkup& c) { c.environment.limits.locked_memory_bytes = 8 << 20; }},
      {"warning few_open_files", [](Checkup& c) { c.environment.limits.open_files = 256; }},
      {"note governor",
       [](Checkup& c) { c.environment.processor.governor = std::string("powersave"); }},
      {"warning cpu_quota",
       [](Checkup& c) {
         c.environment.cpu_quota = 1.5;
         c.environment.usable_cpus = 8;
       }},
      {"warning slow_clock",
       [](Checkup& c) { c.environment.virtualisation.clock_source = std::string("hpet"); }},
      {"note several_interfaces",
       [](Checkup& c) {
         for (const char* name : {"eth0", "docker0"}) {
           c.environment.network.emplace_back().name = name;
           c.environment.network.back().state = std::string("up");
         }
       }},
      {"warning plan_cache_read_only", [](Checkup& c) { c.plan_cache_writable = false; }},
      {"warning little_disk", [](Checkup& c) { c.free_disk_bytes = 1 << 20; }},
      {"warning vgpu_peers_part",
       [](Checkup& c) {
         for (Gpu& gpu : c.gpus) gpu.vgpu_profile = std::string("A100-20C");
       }},
      {"warning mig_peers",
       [](Checkup& c) {
         c.layout = LayoutCheck{"l.json", 1, {}};
         c.layout->peers = {{Urgency::warning, "mig_peers", "seen", "why", "fix"}};
         c.host_names = {"vm0"};
         c.hosts = MpiLaunch{.status = 0, .ranks = 1, .text = ""};
       }},
      {"note clock_not_synchronised", [](Checkup& c) { c.clock_synchronised = false; }},
  };
  for (const auto& [expected, break_it] : faults) {
    Checkup checkup = healthy();
    break_it(checkup);
    EXPECT_EQ(worst(checkup), expected);
  }
}

// The fix of the finding of that code; empty: there is none.
std::string fix_of(const Checkup& checkup, const std::string& code) {
  for (const Finding& finding : diagnose(checkup)) {
    if (finding.code == code) return finding.fix;
  }
  return "";
}

TEST(Doctor, AdviceIsForWhatABackendLacks) {
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

TEST(Doctor, WhatIsTheSameForSeveralKindsIsSaidOnce) {
  const Checkup unknown;
  EXPECT_EQ(advice_for(unknown, {"a", "a", "a"}), "a");
  EXPECT_EQ(advice_for(unknown, {"a", "a", "b"}), "in a VM: a; on bare metal: b");
  EXPECT_EQ(advice_for(unknown, {"a", "b", "c"}), "with KVM: a; with ESXi: b; on bare metal: c");
}

TEST(Doctor, LimitsOfAContainerAreSetByWhoeverStartsIt) {
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

TEST(Doctor, FixesOfGpusAreForTheKindOfMachine) {
  Checkup checkup = healthy();
  Gpu& gpu = checkup.gpus[0];
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

TEST(Doctor, BoardsWithNvLinksAreKnownByName) {
  const auto code_of = [](const std::string& name) {
    Checkup checkup = healthy();
    checkup.environment.virtualisation.machine = MachineKind::vm;
    for (Gpu& gpu : checkup.gpus) {
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

TEST(Doctor, WithoutNvLinkTheFixDependsOnTheMachine) {
  Checkup checkup = healthy();
  checkup.gpus[0].name = checkup.gpus[1].name = "NVIDIA L40S";
  for (Gpu& gpu : checkup.gpus) {
    gpu.active_nvlinks = 0;
    gpu.peers[0].nvlink = false;
  }
  checkup.environment.virtualisation.machine = MachineKind::vm;
  EXPECT_THAT(fix_of(checkup, "peers_without_nvlink"), HasSubstr("through to one VM"));
  checkup.environment.virtualisation.machine = MachineKind::bare_metal;
  EXPECT_THAT(fix_of(checkup, "peers_without_nvlink"), HasSubstr("nvidia-smi nvlink -s"));
}

TEST(Doctor, WhatIsNotKnownIsNoFault) {
  Checkup checkup = healthy();
  checkup.gpus[0] = Gpu{};
  checkup.environment.limits = {};
  checkup.plan_cache_writable = Unknown{"there is no home folder"};
  checkup.free_disk_bytes = Unknown{"?"};
  EXPECT_EQ(worst(checkup), "");
}

TEST(Doctor, WithoutAGpuTheCpuIsEnough) {
  Checkup checkup = healthy();
  checkup.gpu_device_files = false;
  checkup.nvml = Unknown{"no NVML"};
  checkup.gpus.clear();
  checkup.backends["cuda"] = {Obstacle::not_built, "this build has no cuda backend"};
  for (const Finding& finding : diagnose(checkup)) {
    EXPECT_NE(finding.severity, Urgency::blocker) << finding.code;
  }
  checkup.backends["cpu"] = {Obstacle::not_loaded, "no libdnnl.so.2"};
  EXPECT_THAT(worst(checkup), HasSubstr("no_gpu"));
  int blockers = 0;
  for (const Finding& finding : diagnose(checkup)) blockers += finding.severity == Urgency::blocker;
  EXPECT_EQ(blockers, 2) << "nothing can run";
}

TEST(ChildOutput, TellsStatusTextAndTime) {
  const ChildOutput said = run_child({"sh", "-c", "echo out; echo err >&2; exit 3"}, 10);
  EXPECT_EQ(said.exit_status, 3);
  EXPECT_THAT(said.text, HasSubstr("out\n"));
  EXPECT_THAT(said.text, HasSubstr("err\n"));
  EXPECT_FALSE(run_child({"nearmetal-no-such-program"}, 10).exit_status);
  const ChildOutput slow = run_child({"sleep", "30"}, 0.2);
  EXPECT_TRUE(slow.timed_out);
  EXPECT_FALSE(slow.exit_status);
}

}  // namespace
}  // namespace nearmetal
