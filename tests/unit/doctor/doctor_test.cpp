#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/doctor/diagnose.h"
#include "tests/support/healthy_checkup.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

TEST(Doctor, FindsNothingOnAHealthyMachine) {
  EXPECT_EQ(worst(healthy()), "");
  EXPECT_GE(diagnose(healthy()).size(), 6) << "and says what it looked at";
}

Gpu& gpu(Checkup& c, size_t i = 0) { return c.environment.gpus[i]; }

TEST(Doctor, FindsEachFault) {
  using Fault = std::pair<const char*, void (*)(Checkup&)>;
  const Fault faults[] = {
      {"note no_gpu", [](Checkup& c) { c.gpu_device_files = false; }},
      {"blocker no_nvml", [](Checkup& c) { c.nvml = Unknown{"no NVML: not found"}; }},
      {"blocker no_gpu_listed", [](Checkup& c) { c.environment.gpus.clear(); }},
      {"blocker driver_mismatch",
       [](Checkup& c) {
         c.environment.virtualisation.nvidia_kernel_module = std::string("570.1");
       }},
      {"blocker driver_mismatch",
       [](Checkup& c) {
         c.nvml = Unknown{"NVML does not start"};
         c.nvml_status = nvml_versions_differ;
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
         c.environment.gpus.pop_back();
       }},
      {"blocker no_mpi",
       [](Checkup& c) {
         c.mpi.reset();
         c.environment.gpus.pop_back();
         c.layout = LayoutCheck{"layouts.json", 1, {}};
       }},
      {"note cpus_in_use", [](Checkup& c) { c.cpus_busy_with_others = 1.2; }},
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
      {"blocker hosts_one_machine",
       [](Checkup& c) {
         c.host_names = {"vm0", "vm1"};
         c.hosts = MpiLaunch{.status = 0, .text = ""};
         c.one_machine = "hosts 'vm0' and 'vm1' are one machine";
       }},
      {"note hosts_shared_address",
       [](Checkup& c) {
         c.host_names = {"vm0", "vm1"};
         c.hosts = MpiLaunch{.status = 0, .text = ""};
         c.shared_addresses = {{{"docker0", "172.17.0.1", 16}, {"vm0", "vm1"}}};
       }},
      {"warning hosts_variables",
       [](Checkup& c) {
         c.host_names = {"vm0", "vm1"};
         c.hosts = MpiLaunch{.status = 0, .text = ""};
         c.unlike_variables = {"NCCL_DEBUG is INFO on vm0, not set on vm1"};
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
       [](Checkup& c) { gpu(c).vgpu_licence = std::string("unlicensed"); }},
      {"note gpu_confidential", [](Checkup& c) { gpu(c).confidential = std::string("on"); }},
      {"note gpu_interposed",
       [](Checkup& c) {
         c.environment.virtualisation.interposer = std::string("/usr/local/vgpu/libvgpu.so");
       }},
      {"note many_vgpus",
       [](Checkup& c) {
         c.environment.gpus.resize(5, gpu(c));
         for (Gpu& one : c.environment.gpus) one.virtualisation = std::string("host-vgpu");
       }},
      {"blocker gpu_lost", [](Checkup& c) { gpu(c, 1).lost = "GPU is lost (15)"; }},
      {"warning gpu_in_use", [](Checkup& c) { c.gpus_now[1].processes = int64_t{1}; }},
      {"note persistence_off", [](Checkup& c) { gpu(c).persistence = false; }},
      {"warning ecc_pending", [](Checkup& c) { gpu(c).ecc_change_pending = true; }},
      {"note unlike_gpus", [](Checkup& c) { gpu(c, 1).name = "NVIDIA RTX A6000"; }},
      {"warning mig_pending", [](Checkup& c) { gpu(c).mig_change_pending = true; }},
      {"warning mig_empty", [](Checkup& c) { gpu(c).mig = true; }},
      {"warning link_slow",
       [](Checkup& c) {
         c.gpus_now[0].link_is_slow = true;
         gpu(c).link_generation = 2;
         gpu(c).largest_link_generation = 5;
       }},
      {"warning memory_repair_pending", [](Checkup& c) { gpu(c).memory_repair_pending = true; }},
      {"blocker compute_prohibited",
       [](Checkup& c) { gpu(c).compute_mode = std::string("prohibited"); }},
      {"note clocks_set",
       [](Checkup& c) {
         gpu(c).application_sm_hertz = 1'200'000'000;
         gpu(c).largest_sm_hertz = 1'980'000'000;
       }},
      {"warning power_limited",
       [](Checkup& c) {
         gpu(c).power_limit_watts = 400.;
         gpu(c).default_power_limit_watts = 700.;
       }},
      {"warning throttled_now", [](Checkup& c) { c.gpus_now[0].throttle_bits = 0x40; }},
      {"warning narrow_link", [](Checkup& c) { gpu(c).link_width = 8; }},
      {"note numa_unknown", [](Checkup& c) { gpu(c).numa_node = -1; }},
      {"warning nvlink_down", [](Checkup& c) { gpu(c).inactive_nvlinks = 2; }},
      {"warning peer_access_refused", [](Checkup& c) { gpu(c).peers[0].reads = false; }},
      {"note peers_without_nvlink", [](Checkup& c) { gpu(c).peers[0].nvlink = false; }},
      {"warning acs_redirect",
       [](Checkup& c) {
         gpu(c).peers[0].nvlink = false;
         gpu(c, 1).acs_redirect = true;
       }},
      {"note acs_unknown",
       [](Checkup& c) {
         gpu(c).peers[0].nvlink = false;
         gpu(c).peers[0].distance = PciDistance::pxb;
         gpu(c).acs_redirect = Unknown{"not readable"};
       }},
      {"warning small_shared_memory",
       [](Checkup& c) { c.environment.limits.shared_memory_bytes = 64 << 20; }},
      {"note small_locked_memory",
       [](Checkup& c) { c.environment.limits.locked_memory_bytes = 8 << 20; }},
      {"warning no_cross_memory_attach",
       [](Checkup& c) { c.environment.limits.cross_memory_attach = false; }},
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
      {"warning cpu_emulated",
       [](Checkup& c) { c.environment.virtualisation.hypervisor = std::string("qemu"); }},
      {"note nccl_variables", [](Checkup& c) { c.environment.variables["NCCL_ALGO"] = "Tree"; }},
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
         for (Gpu& gpu : c.environment.gpus) gpu.vgpu_profile = std::string("A100-20C");
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

TEST(Doctor, OthersMayUseOnePercentOfManyCpus) {
  Checkup checkup = healthy();
  checkup.cpus_busy_with_others = 1.3;
  checkup.environment.logical_cpus = 192;
  EXPECT_EQ(worst(checkup), "");
  checkup.cpus_busy_with_others = 2;
  EXPECT_EQ(worst(checkup), "note cpus_in_use");
}

TEST(Doctor, ACardHasTheNvLinksOfItsBridges) {
  const auto with = [](const char* name, int64_t active) {
    Checkup checkup = healthy();
    for (Gpu& one : checkup.environment.gpus) {
      one.name = name;
      one.active_nvlinks = active;
      one.inactive_nvlinks = 18 - active;
    }
    return worst(checkup);
  };
  EXPECT_EQ(with("NVIDIA H100 NVL", 12), "");
  EXPECT_EQ(with("NVIDIA H100 PCIe", 12), "");
  EXPECT_EQ(with("NVIDIA H100 NVL", 10), "warning nvlink_down");
  EXPECT_EQ(with("NVIDIA H100 80GB HBM3", 12), "warning nvlink_down");
  EXPECT_EQ(with("NVIDIA H200 NVL", 12), "warning nvlink_down") << "whose bridges have them all";
}

TEST(Doctor, WhatIsNotKnownIsNoFault) {
  Checkup checkup = healthy();
  checkup.environment.gpus[0] = Gpu{};
  checkup.environment.limits = {};
  checkup.plan_cache_writable = Unknown{"there is no home folder"};
  checkup.free_disk_bytes = Unknown{"?"};
  EXPECT_EQ(worst(checkup), "");
}

TEST(Doctor, WithoutAGpuTheCpuIsEnough) {
  Checkup checkup = healthy();
  checkup.gpu_device_files = false;
  checkup.nvml = Unknown{"no NVML"};
  checkup.environment.gpus.clear();
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

TEST(Doctor, DoesNotAnswerForMachinesThatItCannotSee) {
  Checkup checkup = healthy();
  checkup.layout = LayoutCheck{"l.json", 2, {}};
  const auto text = [&] {
    const std::vector<Finding> findings = diagnose(checkup);
    return std::ranges::find(findings, "layout", &Finding::code)->seen;
  };
  EXPECT_EQ(text(), "l.json: this machine has all that a sweep of it (2 layouts) needs");
  checkup.layout->names_this_machine = false;
  EXPECT_THAT(text(), HasSubstr("l.json (2 layouts): its hosts are other machines"));
}

}  // namespace
}  // namespace nearmetal
