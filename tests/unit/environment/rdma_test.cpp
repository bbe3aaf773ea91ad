#include "bench/environment/rdma.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "bench/environment/gpu.h"
#include "bench/environment/system_files.h"
#include "tests/support/host_fixture.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

// The GPUs of a fixture as NVML and the kernel report them.
std::vector<Gpu> gpus_of(const HostFixture& host) {
  setenv("FAKE_NVML_ANSWERS", (host.root() / "probe/nvml").c_str(), 1);
  std::vector<Gpu> gpus = all_gpus(Nvml(NM_FAKE_NVML), host.root());
  unsetenv("FAKE_NVML_ANSWERS");
  return gpus;
}

TEST(Rdma, DevicesAndPortsAreAsTheKernelShowsThem) {
  const HostFixture host("constructed_roce_port_down");
  const std::vector<RdmaDevice> devices = find_rdma(host.root());
  ASSERT_EQ(devices.size(), 1);
  const RdmaDevice& nic = devices[0];
  EXPECT_EQ(nic.name, "mlx5_0");
  EXPECT_THAT(nic.interfaces, testing::ElementsAre("ens1np0"));
  EXPECT_EQ(*nic.pci_id, "0000:19:00.0");
  EXPECT_EQ(*nic.device_id, "0x102115B3");
  EXPECT_EQ(*nic.model, "MT4129");
  EXPECT_EQ(*nic.firmware, "28.39.1002");
  EXPECT_EQ(*nic.board_id, "MT_0000000838");
  EXPECT_EQ(*nic.driver, "mlx5_core");
  EXPECT_FALSE(nic.driver_version) << "the kernel's own";
  EXPECT_TRUE(*nic.device_file);
  EXPECT_EQ(*nic.numa_node, 0);
  EXPECT_EQ(*nic.link_generation, 3);
  EXPECT_EQ(*nic.link_width, 16);
  EXPECT_FALSE(*nic.virtual_function);
  EXPECT_FALSE(*nic.ats_capable);
  ASSERT_EQ(nic.ports.size(), 1);
  const RdmaPort& port = nic.ports[0];
  EXPECT_EQ(*port.state, "down");
  EXPECT_EQ(*port.physical_state, "disabled");
  EXPECT_EQ(*port.link_layer, "Ethernet");
  EXPECT_EQ(*port.bits_per_second, 100'000'000'000);
  ASSERT_EQ(port.gids.size(), 1) << "those that are set";
  EXPECT_EQ(*port.gids[0].gid, "fe80:0000:0000:0000:a288:c203:00ab:cdef");
  EXPECT_EQ(*port.gids[0].type, "RoCE v2");
  EXPECT_EQ(*port.gids[0].interface, "ens1np0");
}

RdmaDevice two_ports() {
  RdmaDevice nic;
  nic.name = "mlx5_0";
  nic.interfaces = {"eth1", "eth2"};
  for (const int number : {1, 2}) {
    RdmaPort port;
    port.number = number;
    port.state = std::string("active");
    RdmaGid gid;
    gid.interface = "eth" + std::to_string(number);
    port.gids = {gid};
    nic.ports.push_back(port);
  }
  return nic;
}

TEST(Rdma, UcxTakesTheInterfacesAndPortsOfANetwork) {
  using testing::ElementsAre;
  const std::set<std::string> all = {"docker0", "eth0", "eth1", "eth2", "lo"};
  RdmaDevice nic = two_ports();
  EXPECT_THAT(ucx_devices(all, {"eth1"}, false, {nic}), ElementsAre("eth1", "mlx5_0:1"));
  EXPECT_THAT(ucx_devices(all, {"eth0"}, false, {nic}), ElementsAre("eth0"));
  EXPECT_THAT(ucx_devices(all, {"docker0", "lo"}, true, {nic}),
              ElementsAre("eth0", "eth1", "eth2", "mlx5_0:1", "mlx5_0:2"));
  EXPECT_THAT(ucx_devices(all, {"eth2", "lo"}, true, {nic}),
              ElementsAre("docker0", "eth0", "eth1", "mlx5_0:1"));
  nic.ports[0].state = std::string("down");
  EXPECT_THAT(ucx_devices(all, {"eth1"}, false, {nic}), ElementsAre("eth1"));
  for (RdmaPort& port : nic.ports) port.gids.clear();
  nic.ports[0].state = std::string("active");
  EXPECT_THAT(ucx_devices({"ib0"}, {"ib0"}, false, {nic}), ElementsAre("ib0")) << "of another NIC";
  nic.interfaces = {"ib0"};
  EXPECT_THAT(ucx_devices({"ib0"}, {"ib0"}, false, {nic}),
              ElementsAre("ib0", "mlx5_0:1", "mlx5_0:2"))
      << "InfiniBand has no GID of its own";
  nic.interfaces = {};
  EXPECT_THAT(ucx_devices(all, {"lo", "docker0", "eth0"}, true, {nic}),
              ElementsAre("eth1", "eth2", "mlx5_0:1", "mlx5_0:2"))
      << "it is in no network left out";
}

TEST(Rdma, ModelsHaveTheNamesOfTheListOfPciIds) {
  const HostFixture host("constructed_roce_port_down");
  std::filesystem::create_directories(host.root() / "usr/share/misc");
  std::ofstream(host.root() / "usr/share/misc/pci.ids")
      << "# ids\n10de  NVIDIA\n\t1021  A GPU\n15b3  Mellanox Technologies\n"
         "\t1021  MT2910 Family [ConnectX-7]\n\t\t15b3 0001  A board\n";
  EXPECT_EQ(*find_rdma(host.root())[0].model, "MT2910 Family [ConnectX-7]");
}

TEST(Rdma, OfedReportsItsVersionAndAVirtualFunctionThatItIsOne) {
  const HostFixture host("constructed_roce_port_down");
  std::filesystem::create_directories(host.root() / "sys/module/mlx5_core");
  std::ofstream(host.root() / "sys/module/mlx5_core/version") << "24.10-1.1.4\n";
  std::filesystem::create_directories(pci_folder(host.root(), "0000:19:00.0") / "physfn");
  const RdmaDevice found = find_rdma(host.root())[0];
  EXPECT_EQ(*found.driver_version, "24.10-1.1.4");
  EXPECT_TRUE(*found.virtual_function);
}

TEST(Rdma, AGuestKnowsAVirtualFunctionByItsId) {
  const HostFixture host("constructed_kvm_guest_not_root");
  EXPECT_FALSE(*find_rdma(host.root())[0].virtual_function) << "the whole NIC is passed through";
  std::ofstream(pci_folder(host.root(), "0000:02:00.0") / "device") << "0x101e\n";
  EXPECT_TRUE(*find_rdma(host.root())[0].virtual_function);
}

TEST(Rdma, ThePairsOfADgxAreBelowASwitchAndTheOthersAcrossIt) {
  const HostFixture host("constructed_dgx_like");
  const std::vector<Gpu> gpus = gpus_of(host);
  ASSERT_EQ(gpus.size(), 8);
  for (size_t gpu = 0; gpu < 8; ++gpu) {
    ASSERT_EQ(gpus[gpu].nics.size(), 8);
    for (size_t nic = 0; nic < 8; ++nic) {
      const bool same_socket = gpu / 4 == nic / 4;
      EXPECT_EQ(*gpus[gpu].nics[nic].distance, gpu == nic    ? PciDistance::pix
                                               : same_socket ? PciDistance::node
                                                             : PciDistance::sys)
          << gpu << " " << nic;
    }
  }
  EXPECT_EQ(*gpus[0].nics[0].gpu_direct_rdma, GpuDirectRdma::dma_buf) << "NCCL prefers it";
  EXPECT_EQ(*gpus[0].peers[0].distance, PciDistance::node);
  EXPECT_EQ(*gpus[0].peers[6].distance, PciDistance::sys);
  EXPECT_EQ(*gpus[0].own_link_generation, 5);
}

TEST(Virtualisation, TheVersionOfTheDriversModuleIsFoundWithoutSysfs) {
  for (const char* name : {"constructed_kvm_guest_no_topology", "constructed_esxi_guest_ats_off"}) {
    const HostFixture host(name);  // with the open module, and with the other
    ASSERT_TRUE(std::filesystem::remove(host.root() / "sys/module/nvidia/version"));
    const Environment found = find_environment(host.root(), host.queries());
    EXPECT_EQ(*found.virtualisation.nvidia_kernel_module, "580.95.05") << name;
  }
}

TEST(Rdma, InAGuestGpuAndNicHaveTheHostBridgeBetweenThem) {
  const HostFixture host("constructed_kvm_guest_no_topology");
  const std::vector<Gpu> gpus = gpus_of(host);
  ASSERT_EQ(gpus.size(), 2);
  EXPECT_EQ(*gpus[0].nics[0].distance, PciDistance::phb);
  EXPECT_EQ(*gpus[0].peers[0].distance, PciDistance::phb);
  const Environment found = find_environment(host.root(), host.queries());
  EXPECT_TRUE(*found.rdma[0].ats_capable);
  EXPECT_TRUE(*found.rdma[0].ats);
  EXPECT_EQ(*found.virtualisation.nvidia_kernel_flavour, "open");
  EXPECT_THAT(found.nccl_topology_file.reason, HasSubstr("NCCL_TOPO_FILE is not set"));
}

TEST(Rdma, WhatUsersMayNotReadIsUnknown) {
  const HostFixture host("constructed_kvm_guest_not_root");
  const RdmaDevice nic = find_rdma(host.root())[0];
  EXPECT_THAT(nic.ats.reason, HasSubstr("0000:02:00.0 is not readable (root may)"));
  EXPECT_FALSE(nic.ats_capable);
  EXPECT_FALSE(nic.acs_redirect);
}

TEST(Rdma, GpuDirectNeedsAModuleThatSharesTheMemoryOfGpus) {
  const HostFixture host("constructed_no_peermem");
  EXPECT_EQ(*gpus_of(host)[0].nics[0].gpu_direct_rdma, GpuDirectRdma::none);
  std::filesystem::create_directories(host.root() / "sys/module/nvidia_peermem");
  EXPECT_EQ(*gpus_of(host)[0].nics[0].gpu_direct_rdma, GpuDirectRdma::peer_memory);
  const HostFixture guest("constructed_esxi_guest_ats_off");
  EXPECT_EQ(*gpus_of(guest)[0].nics[0].gpu_direct_rdma, GpuDirectRdma::peer_memory);
}

TEST(Rdma, ADeviceOfSoftwareReachesNoGpu) {
  const HostFixture host("constructed_roce_port_down");
  std::filesystem::create_directories(host.root() / "sys/class/infiniband/rxe0/ports/1");
  const std::vector<Gpu> gpus = gpus_of(host);
  ASSERT_EQ(gpus[0].nics.size(), 2);
  EXPECT_EQ(*gpus[0].nics[1].gpu_direct_rdma, GpuDirectRdma::none);
  EXPECT_FALSE(gpus[0].nics[1].distance);
  EXPECT_FALSE(find_rdma(host.root())[1].pci_id);
}

TEST(Rdma, BridgesThatRedirectAreSeenFromGpuAndNic) {
  const HostFixture host("constructed_acs_redirect");
  EXPECT_TRUE(*find_rdma(host.root())[0].acs_redirect);
  const std::vector<Gpu> gpus = gpus_of(host);
  EXPECT_TRUE(*gpus[0].acs_redirect);
  EXPECT_EQ(*gpus[0].nics[0].distance, PciDistance::pix);
}

TEST(Rdma, TheTopologyFileIsTheOneThatNcclWouldTake) {
  const HostFixture host("constructed_esxi_guest_ats_off");
  SystemQueries queries = host.queries();
  const auto file = [&] { return find_environment(host.root(), queries).nccl_topology_file; };
  EXPECT_EQ(*file(), "/var/run/nvidia-topologyd/virtualTopology.xml");
  std::filesystem::create_directories(host.root() / "etc");
  std::ofstream(host.root() / "etc/nccl.conf") << "NCCL_TOPO_FILE=/etc/hgx.xml\n";
  EXPECT_EQ(file().reason, "NCCL_TOPO_FILE names /etc/hgx.xml, which is not there");
  std::ofstream(host.root() / "etc/hgx.xml") << "<system/>";
  EXPECT_EQ(*file(), "/etc/hgx.xml");
  std::filesystem::create_directories(host.root() / "home/ada");
  std::ofstream(host.root() / "home/ada/.nccl.conf") << "NCCL_TOPO_FILE=/etc/ada.xml\n";
  std::ofstream(host.root() / "home/ada/job.conf") << "NCCL_TOPO_FILE=/etc/job.xml\n";
  std::map<std::string, std::string> variables = {{"HOME", "/home/ada"}};
  queries.variable = [&](const std::string& name) { return variables[name]; };
  EXPECT_EQ(file().reason, "NCCL_TOPO_FILE names /etc/ada.xml, which is not there");
  variables["NCCL_CONF_FILE"] = "/home/ada/job.conf";
  EXPECT_EQ(file().reason, "NCCL_TOPO_FILE names /etc/job.xml, which is not there");
  variables["NCCL_TOPO_FILE"] = "/etc/other.xml";
  EXPECT_EQ(file().reason, "NCCL_TOPO_FILE names /etc/other.xml, which is not there");
}

TEST(Rdma, TrafficIsWhatTheCountersGrewBy) {
  const HostFixture host("constructed_roce_port_down");
  const std::vector<RdmaTraffic> before = rdma_counters(host.root());
  ASSERT_EQ(before.size(), 1);
  EXPECT_EQ(*before[0].sent_bytes, 4000) << "the kernel counts words of 4 bytes";
  const auto counters = host.root() / "sys/class/infiniband/mlx5_0/ports/1/counters";
  std::ofstream(counters / "port_xmit_data") << "1500\n";
  std::ofstream(counters / "port_rcv_data") << "10\n";
  std::ofstream(counters / "symbol_error") << "5\n";
  const std::vector<RdmaTraffic> traffic = traffic_since(before, rdma_counters(host.root()));
  EXPECT_EQ(traffic[0].rdma_device, "mlx5_0");
  EXPECT_EQ(*traffic[0].sent_bytes, 2000);
  EXPECT_EQ(traffic[0].received_bytes.reason, "the counter was set to 0 meanwhile");
  EXPECT_EQ(*traffic[0].errors, 2);
}

}  // namespace
}  // namespace nearmetal
