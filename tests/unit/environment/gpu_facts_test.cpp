#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/errors.h"
#include "bench/environment/gpu.h"
#include "bench/sweep/hosts_found.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

/// NVML as the fake library answers it.
class GpuFacts : public testing::Test {
 protected:
  // `first`: lines that count before those of the fixture.
  void answer_from(const std::string& fixture, const std::string& first = "") {
    const std::string path = std::string(NM_TESTS_FOLDER) + "/data/nvml/" + fixture + ".txt";
    const auto answers = root_.write("answers.txt", first + content_of(path));
    setenv("FAKE_NVML_ANSWERS", answers.c_str(), 1);
  }
  void TearDown() override { unsetenv("FAKE_NVML_ANSWERS"); }

  TemporaryFolder root_;
};

TEST_F(GpuFacts, ConstructedH200sShowLinksPeersAndLimits) {
  answer_from("constructed_two_h200");
  root_.write("sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
  root_.write("sys/bus/pci/devices/0000:1b:00.0/local_cpulist", "48-95\n");
  const Nvml nvml(NM_FAKE_NVML);
  const std::vector<Gpu> gpus = all_gpus(nvml, root_.path());
  ASSERT_EQ(gpus.size(), 2);
  const Gpu& gpu = gpus[0];
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(*gpu.driver_version, "580.159.03");
  EXPECT_EQ(*gpu.virtualisation, "passthrough");
  EXPECT_EQ(*gpu.link_generation, 5);
  EXPECT_EQ(*gpu.largest_link_width, 16);
  EXPECT_EQ(*gpu.bar1_bytes, 274877906944);
  EXPECT_EQ(*gpu.power_limit_watts, 700);
  EXPECT_EQ(*gpu.largest_sm_hertz, 1'980'000'000);
  EXPECT_TRUE(*gpu.ecc);
  EXPECT_FALSE(*gpu.ecc_change_pending);
  EXPECT_FALSE(*gpu.memory_repair_pending);
  EXPECT_EQ(*gpu.active_nvlinks, 2);
  EXPECT_EQ(*gpu.inactive_nvlinks, 1);
  ASSERT_EQ(gpu.peers.size(), 1);
  EXPECT_EQ(gpu.peers[0].pci_id, "00000000:43:00.0");
  EXPECT_TRUE(*gpu.peers[0].reads);
  EXPECT_TRUE(*gpu.peers[0].nvlink);
  EXPECT_FALSE(*gpu.peers[0].atomics);
  EXPECT_EQ(*gpu.numa_node, 1);
  EXPECT_EQ(*gpu.cpu_affinity, "48-95");
  EXPECT_FALSE(*gpu.virtual_function);
  EXPECT_FALSE(gpus[1].link_generation) << "what is not answered is unknown, not 0";
  EXPECT_THAT(gpus[1].link_generation.reason, HasSubstr("Not Supported"));
}

TEST_F(GpuFacts, ConstructedH200sShowAPlanWhichGpusNvlinkConnects) {
  answer_from("constructed_two_h200");
  const auto placed = [](const char* name, const char* library) {
    Host host;
    host.name = name;
    host.gpus = 2;
    return with_gpu_places(host, library);
  };
  const Host host = placed("localhost", NM_FAKE_NVML);
  ASSERT_EQ(host.places.size(), 2U);
  EXPECT_THAT(host.places[0].nvlinks, testing::ElementsAre(1));
  EXPECT_TRUE(placed("elsewhere", NM_FAKE_NVML).places.empty()) << "its driver is out of reach";
  EXPECT_TRUE(placed("localhost", "libno-such.so.1").places.empty());
}

TEST_F(GpuFacts, AGpuThatIsNotReachedKeepsItsPlaceAndTheReason) {
  answer_from("constructed_two_h200", "fail nvmlDeviceGetHandleByIndex_v2 1 15\n");
  const std::vector<Gpu> gpus = all_gpus(Nvml(NM_FAKE_NVML), root_.path());
  ASSERT_EQ(gpus.size(), 2);
  EXPECT_FALSE(gpus[0].lost);
  EXPECT_TRUE(gpus[1].lost);
  EXPECT_EQ(gpus[1].lost_status, nvml_gpu_is_lost);
}

TEST_F(GpuFacts, NvmlThatDoesNotStartSaysItsStatus) {
  answer_from("constructed_two_h200", "fail nvmlInit_v2 0 18\n");
  try {
    const Nvml nvml(NM_FAKE_NVML);
    FAIL() << "it started";
  } catch (const NvmlDown& error) {
    EXPECT_EQ(error.status, nvml_versions_differ);
    EXPECT_THAT(error.what(), testing::HasSubstr("nvmlInit_v2"));
  }
}

TEST_F(GpuFacts, AChangeOfMigThatWaitsIsKnown) {
  answer_from("constructed_two_h200", "nvmlDeviceGetMigMode 0 0 1\n");
  const std::vector<Gpu> gpus = all_gpus(Nvml(NM_FAKE_NVML), root_.path());
  EXPECT_EQ(gpus.at(0).mig.value, false);
  EXPECT_EQ(gpus.at(0).mig_change_pending.value, true);
}

// As queue systems set it: the user cannot know the index.
TEST_F(GpuFacts, VisibleGpusMayBeNamedByUuid) {
  answer_from("constructed_two_h200");
  for (const auto& [id, minor] : {std::pair("0000:1b:00.0", "0"), std::pair("0000:43:00.0", "1")}) {
    root_.write("proc/driver/nvidia/gpus/" + std::string(id) + "/information",
                "Model: \t\t NVIDIA H200\nDevice Minor: \t " + std::string(minor) + "\n");
    root_.write("dev/nvidia" + std::string(minor), "");
  }
  const std::vector<Gpu> gpus = all_gpus(Nvml(NM_FAKE_NVML), root_.path());
  const auto visible = [&](const std::string& list, const char* library = NM_FAKE_NVML) {
    return *this_machine(root_.path(), list.c_str(), library).visible_gpus;
  };
  EXPECT_THAT(visible(*gpus.at(1).uuid), testing::ElementsAre(1));
  EXPECT_THAT(visible(*gpus[1].uuid + "," + *gpus[0].uuid), testing::ElementsAre(0, 1));
  const std::string same = "GPU-0";  // the UUIDs of both begin so
  EXPECT_THROW(visible(same), std::invalid_argument);
  EXPECT_THAT(visible(gpus[1].uuid->substr(0, gpus[1].uuid->size() - 4)), testing::ElementsAre(1));
  EXPECT_THROW(visible("GPU-f"), std::invalid_argument);
  EXPECT_THROW(visible("MIG-0"), std::invalid_argument);
  EXPECT_THROW(visible(*gpus[1].uuid, "libno-such.so.1"), std::invalid_argument);
}

TEST_F(GpuFacts, ConstructedVgpuShowsThatItIsNotLicensed) {
  answer_from("constructed_vgpu");
  const std::vector<Gpu> gpus = all_gpus(Nvml(NM_FAKE_NVML), root_.path());
  ASSERT_EQ(gpus.size(), 1);
  EXPECT_EQ(*gpus[0].virtualisation, "vgpu");
  EXPECT_EQ(*gpus[0].vgpu_licence, "unlicensed");
  EXPECT_FALSE(gpus[0].active_nvlinks);
}

TEST_F(GpuFacts, ConstructedMigInstancesHaveMultiprocessorsOfTheirOwn) {
  answer_from("constructed_mig");
  const std::vector<Gpu> gpus = all_gpus(Nvml(NM_FAKE_NVML), root_.path());
  ASSERT_EQ(gpus.size(), 1);
  EXPECT_TRUE(*gpus[0].mig);
  ASSERT_EQ(gpus[0].mig_instances.size(), 2);
  EXPECT_EQ(*gpus[0].mig_instances[0].multiprocessors, 32);
  EXPECT_EQ(*gpus[0].mig_instances[1].multiprocessors, 26);
  EXPECT_EQ(*gpus[0].mig_instances[1].gpu_slices, 2);
}

TEST_F(GpuFacts, ConstructedMigDevicesTellTheirProfiles) {
  answer_from("constructed_mig_balanced");
  const std::vector<Gpu> gpus = all_gpus(Nvml(NM_FAKE_NVML), root_.path());
  ASSERT_EQ(gpus.size(), 2);
  EXPECT_EQ(*gpus[0].device_id, "0x233510DE");
  EXPECT_EQ(*gpus[0].subsystem_id, "0x18BE10DE");
  ASSERT_EQ(gpus[0].mig_instances.size(), 4);
  EXPECT_EQ(*gpus[0].mig_instances[0].profile, "3g.71gb");
  EXPECT_EQ(*gpus[0].mig_instances[0].memory_bytes, int64_t{71168} << 20);
  EXPECT_FALSE(gpus[0].mig_profile) << "it is divided, and no part itself";
  answer_from("constructed_mig");
  EXPECT_FALSE(all_gpus(Nvml(NM_FAKE_NVML), root_.path())[0].mig_instances[0].profile)
      << "without a name there is no profile";
}

TEST_F(GpuFacts, AMigDeviceOfCudaHasTheFactsOfItsGpu) {
  answer_from("constructed_mig_balanced");
  DeviceInfo device;
  device.name = "NVIDIA H200 MIG 1g.18gb";
  device.uuid = "GPU-00000000-0000-0000-0000-000000000002";
  device.pci_id = "0000:1b:00.0";
  Gpu gpu = describe_gpu(device);
  add_nvml_facts(gpu, Nvml(NM_FAKE_NVML));
  EXPECT_EQ(*gpu.uuid, "MIG-00000000-0000-0000-0000-000000000002");
  EXPECT_EQ(*gpu.mig_profile, "1g.18gb");
  EXPECT_EQ(*gpu.power_limit_watts, 700);
  EXPECT_EQ(gpu.mig_instances.size(), 4);
  device.name = "NVIDIA H200";
  EXPECT_EQ(mig_uuid(device), std::nullopt);
}

TEST_F(GpuFacts, ConstructedVgpuReportsProfileAndWhyNoScheduler) {
  answer_from("constructed_vgpu");
  const Gpu guest = all_gpus(Nvml(NM_FAKE_NVML), root_.path()).at(0);
  EXPECT_EQ(*guest.vgpu_profile, "A100-40C");
  EXPECT_THAT(guest.vgpu_scheduler.reason, HasSubstr("nvmlDeviceGetVgpuSchedulerState"));
  const TemporaryFolder folder;
  const std::string answers =
      content_of(std::string(NM_TESTS_FOLDER) + "/data/nvml/constructed_vgpu.txt") +
      "nvmlDeviceGetVgpuSchedulerState 0 2\n";
  setenv("FAKE_NVML_ANSWERS", folder.write("answers.txt", answers).c_str(), 1);
  EXPECT_EQ(*all_gpus(Nvml(NM_FAKE_NVML), root_.path()).at(0).vgpu_scheduler, "equal share");
  answer_from("constructed_two_h200");
  EXPECT_EQ(all_gpus(Nvml(NM_FAKE_NVML), root_.path())[0].vgpu_profile.reason, "it is no vGPU");
}

TEST_F(GpuFacts, ConfidentialComputingIsAsNvmlSays) {
  const TemporaryFolder folder;
  const auto found = [&](const std::string& answer) {
    const std::string answers =
        content_of(std::string(NM_TESTS_FOLDER) + "/data/nvml/constructed_two_h200.txt") + answer;
    setenv("FAKE_NVML_ANSWERS", folder.write("answers.txt", answers).c_str(), 1);
    return all_gpus(Nvml(NM_FAKE_NVML), root_.path()).at(0).confidential;
  };
  EXPECT_THAT(found("").reason, HasSubstr("nvmlSystemGetConfComputeState"));
  EXPECT_EQ(*found("nvmlSystemGetConfComputeState 0 0\n"), "off");
  EXPECT_EQ(*found("nvmlSystemGetConfComputeState 1 0\n"), "on");
  EXPECT_EQ(*found("nvmlSystemGetConfComputeState 1 1\n"), "devtools");
}

TEST_F(GpuFacts, MigDevicesOfThisMachineAreFound) {
  const auto found = [&](const std::string& fixture, const std::string& name) {
    answer_from(fixture);
    Host host;
    host.name = name;
    host.gpus = 2;
    return with_mig_devices(host, NM_FAKE_NVML);
  };
  const Host balanced = found("constructed_mig_balanced", "localhost");
  ASSERT_EQ(balanced.mig.size(), 4);
  EXPECT_EQ(balanced.mig[3], (MigDevice{0, "MIG-00000000-0000-0000-0000-000000000003", "1g.18gb"}));
  ASSERT_EQ(balanced.found.size(), 2);
  EXPECT_EQ(balanced.found[0].no_mig, std::nullopt);
  EXPECT_EQ(balanced.found[1].no_mig, "MIG is off");
  EXPECT_THAT(*found("constructed_mig_7_of_1g", "localhost").found[1].no_mig,
              HasSubstr("does not list"));
  EXPECT_TRUE(found("constructed_mig_balanced", "elsewhere").found.empty());
  EXPECT_THAT(*found("constructed_vgpu", "localhost").found.at(0).no_mig,
              HasSubstr("it is a vGPU"));
  Host host;
  host.name = "localhost";
  host.gpus = 1;
  host = with_mig_devices(host, "libno-such.so.1");
  EXPECT_THAT(*host.found.at(0).no_mig, HasSubstr("libno-such"));
}

TEST_F(GpuFacts, ADeviceOfCudaIsFoundByItsAddress) {
  answer_from("constructed_two_h200");
  DeviceInfo device;
  device.name = "NVIDIA H200";
  device.pci_id = "0000:1b:00.0";
  EXPECT_EQ(describe_gpu(device).dma_buf.reason, "the driver does not say");
  device.dma_buf = true;
  Gpu gpu = describe_gpu(device);
  EXPECT_TRUE(*gpu.dma_buf);
  add_nvml_facts(gpu, Nvml(NM_FAKE_NVML));
  EXPECT_EQ(*gpu.serial, "1650000000001");
  gpu.pci_id = std::string("0000:99:00.0");
  add_nvml_facts(gpu, Nvml(NM_FAKE_NVML));
  EXPECT_FALSE(gpu.serial);
  EXPECT_THAT(gpu.serial.reason, HasSubstr("nvmlDeviceGetHandleByPciBusId_v2"));
}

TEST_F(GpuFacts, WithoutLibraryOrDriverThereIsAReason) {
  try {
    Nvml nvml("libnearmetal-has-no-such-library.so.1");
    FAIL();
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("libnearmetal-has-no-such-library.so.1"));
  }
  try {
    Nvml nvml(NM_FAKE_NVML);  // without answers it has no driver
    FAIL();
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("Driver Not Loaded"));
  }
}

}  // namespace
}  // namespace nearmetal
