// Findings on constructed machines: each on its own, and on no other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "bench/doctor/diagnose.h"
#include "bench/environment/environment.h"
#include "bench/environment/gpu.h"
#include "bench/environment/system_files.h"
#include "reports/formats/nic_text.h"
#include "tests/support/host_fixture.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

// Software that works, and a machine as its files show it.
Checkup checkup_of(const HostFixture& host) {
  Checkup checkup;
  checkup.environment = find_environment(host.root(), host.queries());
  checkup.environment.cpu_quota = Unknown{"no limit is set"};
  checkup.environment.variables.clear();  // those of whoever runs the test
  checkup.environment.limits.shared_memory_bytes = host.told("shared_memory_bytes");
  checkup.environment.limits.locked_memory_bytes = host.told("locked_memory_bytes");
  checkup.environment.limits.open_files = 65536;
  setenv("FAKE_NVML_ANSWERS", (host.root() / "probe/nvml").c_str(), 1);
  const Nvml nvml(NM_FAKE_NVML);
  checkup.nvml = nvml.driver_version();
  checkup.environment.gpus = all_gpus(nvml, host.root());
  unsetenv("FAKE_NVML_ANSWERS");
  checkup.gpus_now.resize(checkup.environment.gpus.size());
  checkup.gpu_device_files = true;
  checkup.backends = {{"cpu", {}}, {"cuda", {}}};
  checkup.mpi = MpiLaunch{.status = 0, .ranks = 2, .text = ""};
  return checkup;
}

// Looked for once.
const std::vector<Finding>& findings_on(const std::string& name) {
  static std::map<std::string, std::vector<Finding>> known;
  const auto [found, is_new] = known.try_emplace(name);
  if (is_new) found->second = diagnose(checkup_of(HostFixture(name)));
  return found->second;
}

// "severity code" of those that are not ok.
std::set<std::string> faults_on(const std::string& name) {
  std::set<std::string> faults;
  for (const Finding& finding : findings_on(name)) {
    if (finding.severity == Urgency::ok) continue;
    faults.insert(std::string(to_string(finding.severity)) + " " + finding.code);
    EXPECT_NE(finding.why, "") << name << " " << finding.code;
    EXPECT_NE(finding.fix, "") << name << " " << finding.code;
  }
  return faults;
}

Finding finding_on(const std::string& name, const std::string& code) {
  for (const Finding& finding : findings_on(name)) {
    if (finding.code == code) return finding;
  }
  throw std::runtime_error("no " + code + " on " + name);
}

TEST(Machines, EachFaultIsFoundOnItsOwnAndOnNoOther) {
  const std::map<std::string, std::set<std::string>> machines = {
      {"constructed_dgx_like", {}},
      {"constructed_esxi_guest_ats_off", {"warning ats_off"}},
      {"constructed_esxi_guest_gpu_ats_off", {"warning ats_off"}},
      {"constructed_kvm_guest_no_topology", {"warning no_topology_file"}},
      {"constructed_kvm_guest_nvlink_lost", {"warning nvlink_lost"}},
      {"constructed_kvm_guest_not_root", {"note ats_unknown"}},
      {"constructed_roce_port_down", {"warning rdma_port_down"}},
      {"constructed_roce_without_gid", {"warning roce_without_gid"}},
      {"constructed_nic_port_slow", {"note rdma_port_below_link"}},
      {"constructed_slow_nic_links", {"warning nic_link_slow", "warning rdma_port_slow"}},
      {"constructed_nic_across_socket", {"warning nic_far_from_gpu"}},
      {"constructed_no_peermem", {"warning gpu_direct_off"}},
      {"constructed_acs_redirect", {"warning acs_redirect_nic"}},
      {"constructed_bare_metal_not_root", {"note acs_unknown"}},
      {"constructed_gpu_in_slow_slot", {"warning slow_slot"}},
      {"constructed_pod_small_shm", {"warning small_shared_memory", "warning rdma_file_missing"}},
      {"constructed_little_locked_memory", {"warning small_locked_memory"}},
  };
  for (const auto& [name, faults] : machines) EXPECT_EQ(faults_on(name), faults) << name;
}

TEST(Machines, FindingsNameWhatWasSeen) {
  const std::map<std::pair<std::string, std::string>, std::string> seen = {
      {{"constructed_esxi_guest_ats_off", "ats_off"}, "ATS is off at mlx5_0, though capable of it"},
      {{"constructed_esxi_guest_gpu_ats_off", "ats_off"},
       "ATS is off at GPU 0, though capable of it"},
      {{"constructed_roce_port_down", "rdma_port_down"},
       "mlx5_0 port 1 (ens1np0) is down (disabled)"},
      {{"constructed_roce_without_gid", "roce_without_gid"},
       "mlx5_0 port 1 (ens1np0) has no GID of type RoCE v2"},
      {{"constructed_nic_port_slow", "rdma_port_below_link"},
       "mlx5_0 runs at 100 Gb/s, and its link of PCIe 5 x16 carries 504.1"},
      {{"constructed_slow_nic_links", "nic_link_slow"},
       "mlx5_0 is linked by PCIe 5 x8 and could be by PCIe 5 x16"},
      {{"constructed_slow_nic_links", "rdma_port_slow"},
       "mlx5_2 port 1 (ibp27s0) runs at 200 Gb/s, others of its model at 400"},
      {{"constructed_nic_across_socket", "nic_far_from_gpu"}, "GPU 0 (mlx5_0: SYS)"},
      {{"constructed_no_peermem", "gpu_direct_off"},
       "GPUDirect RDMA is off for mlx5_0: nvidia_peermem is not loaded, and the driver's "
       "proprietary kernel module has no dma-bufs"},
      {{"constructed_acs_redirect", "acs_redirect_nic"}, "between GPU 0 and mlx5_0 redirect"},
      {{"constructed_bare_metal_not_root", "acs_unknown"},
       "PCIe ACS of the bridges between GPU 0 and mlx5_0 is not readable without root: they may "
       "redirect what peers send one another"},
      {{"constructed_gpu_in_slow_slot", "slow_slot"}, "its slot has PCIe 3, the GPU PCIe 5"},
      {{"constructed_kvm_guest_nvlink_lost", "nvlink_lost"}, "2 of 2 paths between GPUs"},
      {{"constructed_pod_small_shm", "small_shared_memory"}, "/dev/shm has 64 MiB"},
      {{"constructed_esxi_guest_ats_off", "machine"},
       "this machine: a VM (vmware) (VMware, Inc., VMware20,1, BIOS "
       "VMW201.00V.21805430.B64.2305221826); NCCL topology file: "},
      {{"constructed_dgx_like", "machine"},
       "this machine: bare metal (NVIDIA, DGXH100, BIOS 1.6.7); NCCL topology file: none ("},
      {{"constructed_pod_small_shm", "machine"}, "in a container ("},
      {{"constructed_dgx_like", "nics"}, "8 RDMA devices, no findings"},
  };
  for (const auto& [place, text] : seen) {
    EXPECT_THAT(finding_on(place.first, place.second).seen, HasSubstr(text)) << place.first;
  }
}

// As it is on a machine of that kind.
std::string fix_in(Checkup checkup, MachineKind machine, const char* hypervisor,
                   const std::string& code) {
  checkup.environment.virtualisation.machine = machine;
  checkup.environment.virtualisation.hypervisor = std::string(hypervisor);
  for (const Finding& finding : diagnose(checkup)) {
    if (finding.code == code) return finding.fix;
  }
  return "none";
}

TEST(Machines, TheFixIsForTheMachineThatWasLookedAt) {
  const std::string esxi = finding_on("constructed_esxi_guest_ats_off", "ats_off").fix;
  EXPECT_THAT(esxi, HasSubstr("esxcli system settings kernel set -s atsSupport -v TRUE"));
  EXPECT_THAT(esxi, HasSubstr("mlxconfig -d DEVICE set ATS_ENABLED=true"));
  const Checkup no_peermem = checkup_of(HostFixture("constructed_no_peermem"));
  EXPECT_THAT(fix_in(no_peermem, MachineKind::vm, "vmware", "gpu_direct_off"),
              HasSubstr("the VM's configuration needs pciPassthru.allowP2P = TRUE"));
  const std::string kvm = finding_on("constructed_kvm_guest_no_topology", "no_topology_file").fix;
  EXPECT_THAT(kvm, HasSubstr("NCCL_TOPO_FILE"));
  EXPECT_THAT(kvm, HasSubstr("pxb-pcie"));
  EXPECT_THAT(kvm, testing::Not(HasSubstr("vSphere")));
  EXPECT_THAT(finding_on("constructed_acs_redirect", "acs_redirect_nic").fix,
              HasSubstr("ECAP_ACS+0x6.w=0000"));
}

TEST(Machines, FixesOfNicsAreForTheKindOfMachine) {
  struct Expected {
    std::string code, kvm, esxi, bare_metal;
  };
  const std::map<std::string, Expected> machines = {
      {"constructed_roce_port_down",
       {"rdma_port_down", "vf N state auto", "uplink of its physical NIC",
        "ip link set ens1np0 up, and look"}},
      {"constructed_slow_nic_links",
       {"rdma_port_slow", "vf N max_tx_rate 0", "esxcli network nic list", "mlxlink -d mlx5_2"}},
      {"constructed_roce_without_gid",
       {"roce_without_gid", "in the VM: give ens1np0 an IP address", "port group's VLAN",
        "cma_roce_mode -d mlx5_0"}},
      {"constructed_nic_across_socket",
       {"nic_far_from_gpu", "pxb-pcie", "esxcli hardware pci list", "same PCIe switch"}},
      {"constructed_pod_small_shm",
       {"rdma_file_missing", "device plugin", "device plugin", "device plugin"}},
  };
  for (const auto& [name, expected] : machines) {
    const Checkup checkup = checkup_of(HostFixture(name));
    EXPECT_THAT(fix_in(checkup, MachineKind::vm, "kvm", expected.code), HasSubstr(expected.kvm));
    EXPECT_THAT(fix_in(checkup, MachineKind::vm, "vmware", expected.code),
                HasSubstr(expected.esxi));
    EXPECT_THAT(fix_in(checkup, MachineKind::bare_metal, "none", expected.code),
                HasSubstr(expected.bare_metal));
  }
}

TEST(Machines, WhereTheMachineIsNotKnownTheFixIsForAllKinds) {
  Checkup checkup = checkup_of(HostFixture("constructed_acs_redirect"));
  checkup.environment.virtualisation.machine = Unknown{"no sign"};
  for (const Finding& finding : diagnose(checkup)) {
    if (finding.code != "acs_redirect_nic") continue;
    for (const char* kind : {"with KVM: ", "with ESXi: ", "on bare metal: "}) {
      EXPECT_THAT(finding.fix, HasSubstr(kind));
    }
  }
}

TEST(Machines, AVmWithAtsHasNoFaultWhereNcclHasATopologyFile) {
  const HostFixture host("constructed_kvm_guest_no_topology");
  std::filesystem::create_directories(host.root() / "var/run/nvidia-topologyd");
  std::ofstream(host.root() / "var/run/nvidia-topologyd/virtualTopology.xml") << "<system/>";
  for (const Finding& finding : diagnose(checkup_of(host))) {
    EXPECT_EQ(finding.severity, Urgency::ok) << finding.code;
  }
}

TEST(Machines, ALinkThatCarriesWhatItsPortDoesIsANote) {
  const Finding warned = finding_on("constructed_slow_nic_links", "nic_link_slow");
  EXPECT_EQ(warned.why, "PCIe carries 252.1 Gb/s then, and its ports 400");
  const HostFixture host("constructed_slow_nic_links");
  for (const char* nic : {"mlx5_0", "mlx5_1", "mlx5_2"}) {
    std::ofstream(host.root() / "sys/class/infiniband" / nic / "ports/1/rate") << "200 Gb/sec\n";
  }
  for (const Finding& finding : diagnose(checkup_of(host))) {
    EXPECT_LT(finding.severity, Urgency::warning) << finding.code;
  }
}

TEST(Machines, NoAtsIsSeenWhereTheNicsFirmwareHasItOff) {
  const HostFixture host("constructed_kvm_guest_no_topology");
  for (const char* address : {"0000:03:00.0", "0000:04:00.0"}) {
    std::ofstream(pci_folder(host.root(), address) / "config")
        << constructed_configuration({{1, 0}});
  }
  for (const Finding& finding : diagnose(checkup_of(host))) {
    if (finding.code != "ats_off") continue;
    EXPECT_THAT(finding.seen,
                HasSubstr("no ATS is seen at mlx5_0, mlx5_1: it is off in the firmware"));
    EXPECT_THAT(finding.fix, HasSubstr("ATS_ENABLED=true"));
    return;
  }
  ADD_FAILURE() << "not found";
}

TEST(Machines, AnIndexThatNamesNoGidOfRoceIsFound) {
  const HostFixture host("constructed_roce_port_down");
  std::ofstream(host.root() / "sys/class/infiniband/mlx5_0/ports/1/state") << "4: ACTIVE\n";
  Checkup checkup = checkup_of(host);
  const auto faults = [&](const std::string& index) {
    checkup.environment.variables["NCCL_IB_GID_INDEX"] = index;
    std::vector<std::string> seen;
    for (const Finding& finding : diagnose(checkup)) {
      if (finding.severity != Urgency::ok) seen.push_back(finding.seen);
    }
    return seen;
  };
  EXPECT_THAT(faults("3"), testing::ElementsAre("NCCL_IB_GID_INDEX=3 names no GID of type RoCE v2 "
                                                "of mlx5_0 port 1 (ens1np0)"));
  EXPECT_THAT(fix_in(checkup, MachineKind::vm, "kvm", "roce_gid_index"),
              HasSubstr("which is 0 at mlx5_0 (show_gids lists them): a VM has other indices"));
  EXPECT_THAT(faults("0"), testing::IsEmpty());
  EXPECT_THAT(faults("-1"), testing::IsEmpty()) << "NCCL's own choice";
}

TEST(Machines, InfiniBandThatIsLinkedWaitsForASubnetManager) {
  const HostFixture host("constructed_nic_across_socket");
  std::ofstream(host.root() / "sys/class/infiniband/mlx5_0/ports/1/state") << "2: INIT\n";
  for (const Finding& finding : diagnose(checkup_of(host))) {
    if (finding.code != "rdma_port_down") continue;
    EXPECT_EQ(finding.seen, "mlx5_0 port 1 (ibp152s0) is init (linkup)");
    EXPECT_THAT(finding.fix, HasSubstr("subnet manager"));
    return;
  }
  ADD_FAILURE() << "not found";
}

TEST(Machines, AGuestWithoutDistancesShowsNoSwitchEither) {
  Checkup checkup = checkup_of(HostFixture("constructed_kvm_guest_no_topology"));
  for (Gpu& gpu : checkup.environment.gpus) {
    for (NicPath& path : gpu.nics) path.distance = Unknown{"their NUMA nodes are not known"};
  }
  const auto found = diagnose(checkup);
  const auto topology = std::ranges::find(found, "no_topology_file", &Finding::code);
  ASSERT_NE(topology, found.end());
  EXPECT_THAT(topology->why, HasSubstr("GPU 0 (at no known distance)"));
}

TEST(Machines, OneOfSeveralPortsThatIsDownIsANote) {
  const HostFixture host("constructed_kvm_guest_no_topology");
  std::ofstream(host.root() / "sys/class/infiniband/mlx5_1/ports/1/state") << "1: DOWN\n";
  for (const Finding& finding : diagnose(checkup_of(host))) {
    if (finding.code != "rdma_port_down") continue;
    EXPECT_EQ(finding.severity, Urgency::note);
    EXPECT_THAT(finding.seen, HasSubstr("mlx5_1 port 1"));
    return;
  }
  ADD_FAILURE() << "not found";
}

TEST(Machines, WithoutASwitchBetweenThemNcclNeedsATopologyFile) {
  const HostFixture host("constructed_nic_across_socket");
  std::ofstream(host.root() / "sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0/numa_node") << "0";
  Checkup checkup = checkup_of(host);
  const auto has_note = [&] {
    return std::ranges::any_of(diagnose(checkup), [](const Finding& finding) {
      return finding.code == "nic_beyond_switch" && finding.severity == Urgency::note;
    });
  };
  EXPECT_TRUE(has_note());
  checkup.environment.variables["NCCL_NET_GDR_LEVEL"] = "SYS";
  EXPECT_FALSE(has_note());
}

TEST(Machines, TheTablesOfADgxFitOnATerminal) {
  Checkup checkup = checkup_of(HostFixture("constructed_dgx_like"));
  std::ostringstream text;
  for (const TitledTable& table : nic_tables({checkup.environment}, true)) {
    print_aligned(text, table.table);
  }
  std::istringstream lines(text.str());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110) << line;
  EXPECT_THAT(text.str(), HasSubstr("7: H100 80GB HBM3 83:00.0"));
}

}  // namespace
}  // namespace nearmetal
