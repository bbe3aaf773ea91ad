#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/environment/environment.h"
#include "bench/environment/gpu.h"
#include "bench/environment/rdma.h"
#include "reports/attribution/known_causes.h"
#include "tests/support/host_fixture.h"
#include "tests/support/made_up_machine.h"

namespace nearmetal {
namespace {

// The ways between GPUs and networks of a constructed machine.
Environment machine_of(const std::string& fixture) {
  const HostFixture host(fixture);
  Environment machine;
  machine.virtualisation = find_virtualisation(host.root(), host.queries(), false);
  machine.network = find_network(host.root());
  machine.rdma = find_rdma(host.root());
  setenv("FAKE_NVML_ANSWERS", (host.root() / "probe/nvml").c_str(), 1);
  machine.gpus = all_gpus(Nvml(NM_FAKE_NVML), host.root());
  unsetenv("FAKE_NVML_ANSWERS");
  machine.limits.shared_memory_bytes = host.told("shared_memory_bytes");
  machine.limits.locked_memory_bytes = host.told("locked_memory_bytes");
  return machine;
}

// Causes for a job over two machines like `next` being slower than one over two like `base`.
std::vector<std::string> causes_on(const Environment& next, const Environment& base) {
  Run run = run_on({});
  run.ranks.resize(2, run.ranks[0]);
  run.ranks[1].environment = 1;
  LayerShare slow;
  slow.layer = Layer::communication;
  slow.seconds = 0.01;
  std::vector<std::string> codes;
  for (const KnownCause& cause : known_causes({{&run}, {&base}}, {{&run}, {&next}}, {slow})) {
    codes.push_back(cause.code);
    EXPECT_NE(cause.hint, "");
  }
  return codes;
}

void bring_near(Environment& machine) {
  for (Gpu& gpu : machine.gpus) {
    for (NicPath& path : gpu.nics) path.distance = PciDistance::pix;
  }
}

void read_gpus(Environment& machine) {
  for (Gpu& gpu : machine.gpus) {
    for (NicPath& path : gpu.nics) path.gpu_direct_rdma = GpuDirectRdma::peer_memory;
  }
}

void connect(Environment& machine) {
  for (Gpu& gpu : machine.gpus) {
    for (GpuPeer& peer : gpu.peers) peer.nvlink = true;
  }
}

struct Faulty {
  const char* fixture;
  void (*heal)(Environment&);
  std::vector<std::string> codes;
};

// Each is compared with itself without its fault.
const std::vector<Faulty>& faulty_machines() {
  static const std::vector<Faulty> machines = {
      {"constructed_esxi_guest_ats_off",
       [](Environment& m) { m.rdma[0].ats = true; },
       {"ats_lost"}},
      {"constructed_esxi_guest_gpu_ats_off",
       [](Environment& m) { m.gpus[0].ats = true; },
       {"ats_lost"}},
      {"constructed_kvm_guest_no_topology", bring_near, {"nic_distance"}},
      {"constructed_kvm_guest_nvlink_lost", connect, {"nvlink_absent"}},
      {"constructed_nic_across_socket", bring_near, {"nic_distance"}},
      {"constructed_nic_port_slow",
       [](Environment& m) { m.rdma[0].ports[0].bits_per_second = 400'000'000'000; },
       {"network_slower"}},
      {"constructed_no_peermem", read_gpus, {"gdr_lost"}},
      {"constructed_pod_small_shm",
       [](Environment& m) {
         m.limits.shared_memory_bytes = int64_t{8} << 30;
         m.rdma[0].device_file = true;
       },
       {"shared_memory_small", "device_files_missing"}},
      {"constructed_little_locked_memory",
       [](Environment& m) { m.limits.locked_memory_bytes = Unknown{no_limit}; },
       {"locked_memory_small"}},
      {"constructed_roce_port_down",
       [](Environment& m) { m.rdma[0].ports[0].state = std::string("active"); },
       {"nics_fewer"}},
  };
  return machines;
}

TEST(HostCauses, AreNamedOnTheMachinesThatHaveThemAndOnNoOther) {
  const std::vector<std::string> none = {"not_seen"};
  for (const Faulty& faulty : faulty_machines()) {
    const Environment machine = machine_of(faulty.fixture);
    Environment healthy = machine;
    faulty.heal(healthy);
    EXPECT_EQ(causes_on(machine, healthy), faulty.codes) << faulty.fixture;
    EXPECT_EQ(causes_on(healthy, healthy), none) << faulty.fixture;
    EXPECT_EQ(causes_on(machine, machine), none) << faulty.fixture << ": the same on both sides";
  }
}

// A VM of other hardware differs in more than its fault.
TEST(HostCauses, OfAVmAgainstADgxAreAllNamed) {
  const std::vector<std::string> codes = {"nics_fewer", "nic_distance", "ats_lost",
                                          "network_slower", "hypervisor"};
  EXPECT_EQ(
      causes_on(machine_of("constructed_esxi_guest_ats_off"), machine_of("constructed_dgx_like")),
      codes);
}

}  // namespace
}  // namespace nearmetal
