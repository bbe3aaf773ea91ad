#include "reports/attribution/known_causes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/made_up_machine.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two sides that are alike, for a test to change; one layer that counts.
struct KnownCauses : testing::Test {
  std::vector<std::string> codes(const std::vector<Layer>& slow) {
    std::vector<LayerShare> layers;
    for (const Layer layer : slow) {
      LayerShare share;
      share.layer = layer;
      share.seconds = 0.01;
      layers.push_back(share);
    }
    found = known_causes(base, next, layers);
    std::vector<std::string> codes;
    for (const KnownCause& cause : found) codes.push_back(cause.code);
    return codes;
  }
  Gpu& gpu() { return new_machine.gpus[0]; }
  void exchange_between_systems() {
    for (nearmetal::Run* run : {&base_run, &new_run}) {
      run->ranks.resize(2, run->ranks[0]);
      run->ranks[1].environment = 1;
    }
  }
  std::vector<std::string> codes_where_nccl_took(const std::vector<std::string>& there,
                                                 const std::vector<std::string>& here) {
    const auto take = [](nearmetal::Run& run, const std::vector<std::string>& transports) {
      run.communication.emplace();
      if (transports.empty()) return;
      NcclChoices choices;
      choices.transports = transports;
      run.communication->nccl = choices;
    };
    take(base_run, there);
    take(new_run, here);
    return codes({Layer::communication});
  }

  nearmetal::Run base_run = run_on({}), new_run = run_on({});
  Environment base_machine = sample_report().environments[0];
  Environment new_machine = base_machine;
  ExplainedSide base{{&base_run}, {&base_machine}}, next{{&new_run}, {&new_machine}};
  std::vector<KnownCause> found;
};

TEST_F(KnownCauses, WhereNothingIsSeenItSaysWhereToLook) {
  EXPECT_THAT(codes({Layer::memory, Layer::cpu}), ElementsAre("not_seen", "not_seen"));
  EXPECT_EQ(found[0].layer, Layer::memory);
  EXPECT_NE(found[0].hint, found[1].hint);
}

TEST_F(KnownCauses, LayersThatDoNotCountOrSaveTimeHaveNone) {
  LayerShare hidden, noise, better, open;
  for (LayerShare* share : {&hidden, &noise, &better}) share->seconds = 0.01;
  hidden.sensitive = false;
  noise.below_noise = true;
  better.seconds = -0.01;
  open.seconds = Unknown{"not probed"};
  new_machine.usable_cpus = 0;
  EXPECT_THAT(known_causes(base, next, {hidden, noise, better, open}), testing::IsEmpty());
}

TEST_F(KnownCauses, OfACpuThatIsEmulatedComeBeforeWhatFitsManyLayers) {
  new_machine.virtualisation.machine = MachineKind::vm;
  new_machine.virtualisation.hypervisor = std::string("kvm");
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("hypervisor"));
  new_machine.virtualisation.hypervisor = std::string("qemu");
  for (const Layer layer : {Layer::cpu, Layer::clock, Layer::compute}) {
    ASSERT_FALSE(codes({layer}).empty());
    EXPECT_EQ(found[0].code, "cpu_emulated");
    EXPECT_EQ(found[0].layer, layer);
  }
  base_machine.virtualisation = new_machine.virtualisation;
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("not_seen")) << "it is on both sides";
}

TEST_F(KnownCauses, OfCpus) {
  base_machine.usable_cpus = 8;
  new_machine.usable_cpus = 8;
  new_machine.cpu_quota = 2.5;
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("cpu_quota"));
  EXPECT_EQ(found[0].seen,
            "the control group's quota of CPUs, of 8 that are usable: 2.50 instead of 8.00");
  EXPECT_THAT(codes({Layer::compute}), ElementsAre("not_seen")) << "the GPU computes";
  new_run.device = Device::cpu;
  EXPECT_THAT(codes({Layer::compute, Layer::cpu}), ElementsAre("cpu_quota")) << "once";
  new_run.device = Device::cuda;
  new_machine.usable_cpus = 2;
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("cpu_set_smaller")) << "the mask is narrower";
  new_machine.usable_cpus = 8;
  base_machine.cpu_quota = 2.5;
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("not_seen")) << "both are as small";
  new_run.ranks[0].monitoring->series = {{"cpu_steal_share", 0, 0.2, 0.4, {}},
                                         {"cpus_busy_with_others", 0, 1.1, 2, {}}};
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("steal", "other_processes"));
  EXPECT_THAT(found[0].seen, HasSubstr("20.0 %"));
  base_run.ranks[0].monitoring->series = {{"cpu_steal_share", 0, 0.18, 0.4, {}},
                                          {"cpus_busy_with_others", 0, 1.0, 2, {}}};
  EXPECT_THAT(codes({Layer::cpu}), ElementsAre("not_seen")) << "the base had it, too";
}

TEST_F(KnownCauses, OfPageableInput) {
  new_run.ranks[0].probes->needs.input_pageable = true;
  EXPECT_THAT(codes({Layer::input}), ElementsAre("pageable_input"));
  EXPECT_THAT(found[0].hint, HasSubstr("--input host"));
  base_run.ranks[0].probes->needs.input_pageable = true;
  EXPECT_THAT(codes({Layer::input}), ElementsAre("not_seen"));
}

TEST_F(KnownCauses, OfLinks) {
  base_machine.gpus[0].peers = {{"0000:02:00.0", true, true, true}};
  gpu().peers = {{"0000:02:00.0", false, false, false}};
  gpu().active_nvlinks = int64_t{0};
  base_machine.gpus[0].active_nvlinks = int64_t{18};
  new_machine.variables["NCCL_P2P_DISABLE"] = "1";
  EXPECT_THAT(codes({Layer::communication}),
              ElementsAre("p2p_refused", "nvlink_absent", "nvlinks_fewer", "transport"));
  EXPECT_THAT(found[3].seen, HasSubstr("NCCL_P2P_DISABLE=1"));
  gpu().peers[0].reads = Unknown{"not told"};
  EXPECT_EQ(codes({Layer::communication}).front(), "nvlink_absent") << "unknown is not refused";
}

TEST_F(KnownCauses, TransportsOfNcclAreNamedWhereBothSidesKnowThem) {
  EXPECT_THAT(codes_where_nccl_took({"P2P/CUMEM"}, {}), ElementsAre("not_seen"));
  EXPECT_THAT(codes_where_nccl_took({"P2P/CUMEM"}, {"P2P/CUMEM"}), ElementsAre("not_seen"));
  EXPECT_THAT(codes_where_nccl_took({"P2P/CUMEM"}, {"P2P/CUMEM/read"}),
              ElementsAre("transport_chosen"));
  EXPECT_EQ(found[0].seen, "NCCL goes by P2P/CUMEM/read instead of P2P/CUMEM");
}

TEST_F(KnownCauses, AWorseTransportHasACauseOfItsOwn) {
  const std::vector<std::tuple<std::string, const char*, const char*>> worse = {
      {"p2p_lost", "P2P/CUMEM", "SHM/direct/direct"},
      {"shared_memory_lost", "P2P/CUMEM", "NET/Socket/0"},
      {"shared_memory_lost", "SHM/direct/direct", "NET/IB/0"},
      {"gdr_lost", "NET/IB/0/GDRDMA", "NET/IB/0"},
      {"rdma_lost", "NET/IB/0/GDRDMA", "NET/Socket/0"},
      {"rdma_lost", "NET/IB/0", "NET/Socket/0"}};
  for (const auto& [code, there, here] : worse) {
    EXPECT_THAT(codes_where_nccl_took({there}, {here}), ElementsAre(code)) << there << here;
    EXPECT_THAT(found[0].seen, HasSubstr(std::string(here) + " instead of " + there));
    EXPECT_THAT(codes_where_nccl_took({there, here}, {here}), ElementsAre("transport_chosen"))
        << "the base has it, too";
    EXPECT_THAT(codes_where_nccl_took({here}, {there}), ElementsAre("transport_chosen"));
  }
  EXPECT_THAT(
      codes_where_nccl_took({"P2P/CUMEM", "NET/IB/0/GDRDMA"}, {"SHM/direct/direct", "NET/IB/0"}),
      ElementsAre("p2p_lost", "gdr_lost"));
}

// A NIC of a host with one GPU; two systems of it exchange gradients.
RdmaDevice nic(const std::string& name, bool ats, const std::string& state = "active") {
  RdmaDevice device;
  device.name = name;
  device.pci_id = std::string("0000:17:00.0");
  device.ats = ats;
  RdmaPort& port = device.ports.emplace_back();
  port.state = state;
  port.bits_per_second = int64_t{400'000'000'000};
  return device;
}

TEST_F(KnownCauses, OfNics) {
  exchange_between_systems();
  base_machine.rdma = {nic("mlx5_0", true), nic("mlx5_1", true)};
  base_machine.gpus[0].nics = {{"mlx5_0", PciDistance::pix, GpuDirectRdma::dma_buf},
                               {"mlx5_1", PciDistance::sys, GpuDirectRdma::dma_buf}};
  new_machine = base_machine;
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen"));
  new_machine.rdma[1] = nic("mlx5_1", false, "down");
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("nics_fewer", "ats_lost"));
  EXPECT_EQ(found[0].seen, "RDMA devices with an active port: 1.00 instead of 2.00");
  EXPECT_EQ(found[1].seen, "address translation (ATS) is off: mlx5_1");
  base_machine.rdma[1].ats = false;
  new_machine.rdma = base_machine.rdma;
  base_machine.virtualisation.machine = MachineKind::bare_metal;
  new_machine.virtualisation.machine = MachineKind::vm;
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("ats_lost", "hypervisor"));
  EXPECT_EQ(found[0].seen, "address translation (ATS) is off in the VM: mlx5_1");
  base_machine.virtualisation = new_machine.virtualisation;
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen")) << "off in both VMs";
  base_machine.rdma[1].ats = true;
  new_machine.rdma = base_machine.rdma;
  new_machine.rdma[0].device_file = false;
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("device_files_missing"));
  EXPECT_EQ(found[0].seen, "RDMA devices have no file in /dev/infiniband: mlx5_0");
  new_machine.rdma = base_machine.rdma;
  gpu().nics[0].distance = PciDistance::phb;
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("nic_distance"));
  EXPECT_EQ(found[0].seen, "from a GPU to its nearest NIC: PHB instead of PIX");
  gpu().nics = {{"mlx5_0", PciDistance::pix, GpuDirectRdma::none},
                {"mlx5_1", PciDistance::sys, GpuDirectRdma::none}};
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("gdr_lost"));
  gpu().nics.clear();
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen")) << "not known";
  gpu().nics = base_machine.gpus[0].nics;
  for (RdmaDevice& device : new_machine.rdma) {
    device.ports[0].bits_per_second = int64_t{100'000'000'000};
  }
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("network_slower"));
  EXPECT_THAT(found[0].seen, HasSubstr("100 instead of 400"));
  new_run.ranks[1].environment = 0;
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen")) << "no network is used";
}

TEST_F(KnownCauses, AreWhatDoctorFindsOnTheNewSideAlone) {
  exchange_between_systems();
  gpu().vgpu_licence = std::string("unlicensed");
  EXPECT_THAT(codes({Layer::clock}), ElementsAre("vgpu_unlicensed"));
  gpu().confidential = std::string("on");
  new_machine.virtualisation.interposer = std::string("/usr/local/vgpu/libvgpu.so");
  EXPECT_THAT(codes({Layer::launch}), ElementsAre("gpu_confidential", "gpu_interposed"));
  gpu().confidential = std::string("off");
  new_machine.virtualisation.interposer = base_machine.virtualisation.interposer;
  base_machine.rdma = new_machine.rdma = {nic("mlx5_0", true)};
  RdmaDevice& slow = new_machine.rdma[0];
  slow.link_width = int64_t{8};
  slow.largest_link_width = int64_t{16};
  slow.ports[0].link_layer = std::string("Ethernet");
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("roce_without_gid", "nic_link_slow"));
  EXPECT_THAT(found[0].hint, HasSubstr("cma_roce_mode -d mlx5_0"));
  slow.ports[0].gids = {{.index = 3, .gid = {}, .type = std::string("RoCE v2"), .interface = {}}};
  new_machine.variables["NCCL_IB_GID_INDEX"] = "1";
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("roce_gid_index", "nic_link_slow"));
  EXPECT_THAT(found[0].hint, HasSubstr("which is 3 at mlx5_0"));
  base_machine = new_machine;
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen"));
}

TEST_F(KnownCauses, OfEarlierReportsNicsAreNotKnown) {
  new_run.ranks.resize(2, new_run.ranks[0]);
  new_run.ranks[1].environment = 1;
  base_machine.rdma = {nic("mlx5_0", true)};
  new_machine.network.emplace_back().rdma_device = std::string("mlx5_0");
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen"));
}

TEST_F(KnownCauses, OfWhatAContainerIsAllowed) {
  base_machine.limits.locked_memory_bytes = Unknown{no_limit};
  base_machine.limits.shared_memory_bytes = int64_t{1} << 36;
  new_machine.limits.shared_memory_bytes = int64_t{1} << 35;
  new_machine.limits.locked_memory_bytes = int64_t{1} << 33;
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen")) << "less, but not small";
  new_machine.limits.shared_memory_bytes = int64_t{64} << 20;
  new_machine.limits.locked_memory_bytes = int64_t{64} << 10;
  EXPECT_THAT(codes({Layer::communication}),
              ElementsAre("shared_memory_small", "locked_memory_small"));
  EXPECT_EQ(found[0].seen, "/dev/shm: 67.11 MB instead of 68.72 GB");
  EXPECT_EQ(found[1].seen, "locked memory, at most: 65.54 kB instead of no limit");
  base_machine.limits = new_machine.limits;
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen"));
  base_machine.limits = {};
  EXPECT_THAT(codes({Layer::communication}), ElementsAre("not_seen")) << "the base is not known";
}

TEST_F(KnownCauses, OfTheGpu) {
  base_machine.gpus[0].power_limit_watts = 700.0;
  gpu().power_limit_watts = 500.0;
  new_run.ranks[0].monitoring->reasons = {
      {.code = "clocks_power_limit", .figure = Figure{0.8, 0.01, FigureUnit::share}}};
  EXPECT_THAT(codes({Layer::clock}), ElementsAre("clocks_lowered", "power_limit"));
  base_machine.gpus[0].application_sm_hertz = 1.98e9;
  gpu().application_sm_hertz = 1.2e9;
  EXPECT_THAT(codes({Layer::clock}), ElementsAre("clocks_lowered", "power_limit", "clock_limit"));
  EXPECT_THAT(found[2].seen, HasSubstr("1200"));
  gpu().multiprocessors = int64_t{66};
  EXPECT_THAT(codes({Layer::memory}), ElementsAre("multiprocessors_fewer"));
  base_machine.gpus[0].virtualisation = std::string("none");
  gpu().virtualisation = std::string("vgpu");
  EXPECT_THAT(codes({Layer::memory}), ElementsAre("multiprocessors_fewer", "gpu_virtualisation"));
  EXPECT_THAT(found[1].seen, HasSubstr("vgpu"));
  gpu().virtualisation = base_machine.gpus[0].virtualisation;
  base_machine.gpus[0].link_width = int64_t{16};
  gpu().link_width = int64_t{4};
  new_run = run_on({.pageable_seconds = 5.5e-3});
  EXPECT_THAT(codes({Layer::input}), ElementsAre("link_width", "as_if_pageable"));
}

TEST_F(KnownCauses, TheHypervisorComesLastAndACauseOnce) {
  base_machine.virtualisation.machine = MachineKind::bare_metal;
  new_machine.virtualisation.machine = MachineKind::vm;
  new_machine.usable_cpus = 1;
  base_machine.usable_cpus = 2;
  EXPECT_THAT(codes({Layer::cpu, Layer::launch, Layer::memory}),
              ElementsAre("cpu_set_smaller", "hypervisor"));
  EXPECT_EQ(found[1].layer, Layer::cpu);
  new_run.ranks[0].binding->numa_node = Unknown{"--bind off"};
  EXPECT_EQ(codes({Layer::memory}), (std::vector<std::string>{"not_bound", "hypervisor"}));
}

}  // namespace
}  // namespace nearmetal
