#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

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
  return machine;
}

// Of a job over two such machines that is slower than over two like the DGX.
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

// The DGX has eight NICs of 400 Gbit/s, which most of these machines have not.
TEST(HostCauses, AreNamedOnTheMachinesThatHaveThem) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> machines = {
      {"constructed_dgx_like", {"not_seen"}},
      {"constructed_esxi_guest_ats_off",
       {"nics_fewer", "nic_distance", "ats_lost", "network_slower", "hypervisor"}},
      {"constructed_kvm_guest_no_topology", {"nics_fewer", "nic_distance", "hypervisor"}},
      {"constructed_kvm_guest_nvlink_lost", {"nvlink_absent", "nics_fewer", "hypervisor"}},
      {"constructed_nic_across_socket", {"nics_fewer", "nic_distance", "network_slower"}},
      {"constructed_no_peermem", {"gdr_lost", "nics_fewer", "network_slower"}},
      {"constructed_pod_small_shm", {"device_files_missing", "nics_fewer", "network_slower"}},
      {"constructed_roce_port_down", {"nics_fewer"}},
  };
  const Environment dgx = machine_of("constructed_dgx_like");
  for (const auto& [fixture, codes] : machines) {
    EXPECT_EQ(causes_on(machine_of(fixture), dgx), codes) << fixture;
  }
}

}  // namespace
}  // namespace nearmetal
