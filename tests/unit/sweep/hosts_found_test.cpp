#include "bench/sweep/hosts_found.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "bench/sweep/supported_layouts.h"
#include "comm/layout/layout.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;

// A GPU as the driver and the kernel list it, with its device node.
void add_gpu(const TemporaryFolder& root, const std::string& pci_id, int minor,
             const std::string& cpus, const std::string& model = "NVIDIA H200") {
  root.write("proc/driver/nvidia/gpus/" + pci_id + "/information",
             "Model: \t\t " + model + "\nDevice Minor: \t " + std::to_string(minor) + "\n");
  root.write("dev/nvidia" + std::to_string(minor), "");
  root.write("sys/bus/pci/devices/" + pci_id + "/local_cpulist", cpus + "\n");
}

// The CPUs that this test may use.
std::string usable() {
  const TemporaryFolder root;
  return this_machine(root.path()).cpus.value();
}

TEST(ThisMachine, WithoutGpusHasItsCpus) {
  const TemporaryFolder root;
  const Host host = this_machine(root.path());
  EXPECT_EQ(host.name, "localhost");
  EXPECT_EQ(host.gpus, 0);
  EXPECT_FALSE(parse_cpu_list(*host.cpus).empty());
}

TEST(ThisMachine, CountsGpusThatAreHereInTheOrderOfTheBus) {
  const std::vector<int64_t> cpus = parse_cpu_list(usable());
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU cannot be next to one GPU alone";
  const std::string first = std::to_string(cpus[0]);
  const std::string second = std::to_string(cpus[1]);
  const TemporaryFolder root;
  add_gpu(root, "0000:1b:00.0", 0, second + ",65000");  // CPUs beyond are those of others
  add_gpu(root, "0000:0a:00.0", 1, first);
  add_gpu(root, "0000:2c:00.0", 2, second);
  // Another that the driver of the host knows, and this container has not.
  root.write("proc/driver/nvidia/gpus/0000:00:01.0/information", "Device Minor: 7\n");
  const Host host = this_machine(root.path());
  EXPECT_EQ(host.gpus, 3);
  EXPECT_FALSE(host.cpus);
  ASSERT_EQ(host.numa.size(), 2u);
  EXPECT_EQ(host.numa[0].cpus, first);
  EXPECT_THAT(host.numa[0].gpus, ElementsAre(0));
  EXPECT_EQ(host.numa[1].cpus, second);
  EXPECT_THAT(host.numa[1].gpus, ElementsAre(1, 2));
}

TEST(ThisMachine, WhereNeighboursAreNotKnownAllCpusAreNextToAllGpus) {
  const TemporaryFolder root;
  add_gpu(root, "0000:0a:00.0", 0, "");
  add_gpu(root, "0000:1b:00.0", 1, "0");
  const Host host = this_machine(root.path());
  ASSERT_EQ(host.numa.size(), 1u);
  EXPECT_EQ(host.numa[0].cpus, usable());
  EXPECT_THAT(host.numa[0].gpus, ElementsAre(0, 1));
}

TEST(ThisMachine, TakesNoGpusThatAreHidden) {
  const TemporaryFolder root;
  for (int gpu = 0; gpu < 4; ++gpu) {
    add_gpu(root, "0000:" + std::to_string(10 + gpu) + ":00.0", gpu, "");
  }
  const auto visible = [&](const char* list) {
    return this_machine(root.path(), list).visible_gpus;
  };
  EXPECT_EQ(visible(nullptr), std::nullopt);
  EXPECT_THAT(*visible("3,1"), ElementsAre(1, 3));
  EXPECT_THAT(*visible("2,-1,0"), ElementsAre(2)) << "as CUDA reads it";
  EXPECT_EQ(this_machine(root.path(), "3,1").gpus, 4) << "whose indexes stay";
  for (const char* none : {"", "-1"}) {
    const Host host = this_machine(root.path(), none);
    EXPECT_EQ(host.gpus, 0);
    EXPECT_FALSE(host.cpus->empty());
  }
  for (const char* other : {"4", "GPU-8a3c", "1,x", "MIG-1"}) {
    EXPECT_THROW(this_machine(root.path(), other), std::invalid_argument) << other;
  }
}

TEST(ThisMachine, HasHiddenGpusForLayoutsThatNameGpus) {
  const TemporaryFolder root;
  for (int gpu = 0; gpu < 4; ++gpu) {
    add_gpu(root, "0000:" + std::to_string(10 + gpu) + ":00.0", gpu, "");
  }
  LayoutFile file;
  Instance instance;
  instance.host = "localhost";
  file.layouts.emplace_back().jobs.emplace_back().instances = {instance};
  const auto for_layouts = [&] { return this_machine_for(file.layouts, root.path(), "3,1"); };
  EXPECT_THAT(*for_layouts().visible_gpus, ElementsAre(1, 3));
  file.hosts = {for_layouts()};
  file.layouts = fill_in_instances(file.layouts, file.hosts);
  EXPECT_THAT(file.layouts[0].jobs[0].instances[0].gpus, ElementsAre(1));
  file.layouts[0].jobs[0].instances[0].gpus = {2};
  EXPECT_EQ(for_layouts().visible_gpus, std::nullopt);
}

// CUDA counts the fastest first, a sweep along the bus.
TEST(ThisMachine, CountsHiddenGpusAsCudaDoes) {
  const TemporaryFolder root;
  add_gpu(root, "0000:0a:00.0", 0, "", "NVIDIA T4");
  add_gpu(root, "0000:0b:00.0", 1, "", "NVIDIA A100");
  EXPECT_EQ(this_machine(root.path(), nullptr).gpus, 2);
  EXPECT_EQ(this_machine(root.path(), "-1").gpus, 0);
  EXPECT_THROW(this_machine(root.path(), "0"), std::invalid_argument);
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  EXPECT_THAT(*this_machine(root.path(), "0").visible_gpus, ElementsAre(0));
  unsetenv("CUDA_DEVICE_ORDER");
}

// What ranks would refuse as they meet.
TEST(ThisMachine, LayoutsWithAJobOnUnlikeGpusAreLeftOut) {
  const TemporaryFolder root;
  add_gpu(root, "0000:0a:00.0", 0, "", "NVIDIA H200");
  add_gpu(root, "0000:0b:00.0", 1, "", "NVIDIA RTX A6000");
  Host host = this_machine(root.path(), nullptr);
  host.models = gpu_models(root.path());
  EXPECT_THAT(host.models, ElementsAre("NVIDIA H200", "NVIDIA RTX A6000"));
  std::vector<Layout> layouts(2);
  for (Layout& layout : layouts) {
    layout.name = layout.shape.emplace(&layout == &layouts[0] ? "1x1x2" : "2*(1x1x1)");
  }
  const auto supported = [&] {
    return supported_layouts(fill_in_instances(layouts, {host}), {host}, {});
  };
  const SupportedLayouts found = supported();
  ASSERT_EQ(found.left_out.size(), 1U);
  EXPECT_EQ(found.left_out[0].name, "1x1x2");
  EXPECT_THAT(found.left_out[0].reason, testing::HasSubstr("GPU 1 is NVIDIA RTX A6000"));
  EXPECT_EQ(found.layouts.at(0).name, "2*(1x1x1)") << "each of whose jobs is on one";
  host.models[1] = "";  // not told
  EXPECT_EQ(supported().layouts.size(), 2U);
}

// Ranks on CPUs instead would be another measurement.
TEST(ThisMachine, WithGpusThatItCannotCountIsRefused) {
  const TemporaryFolder root;
  root.write("dev/dxg", "");
  EXPECT_THROW(this_machine(root.path()), std::invalid_argument);
}

TEST(Hosts, ComeFromAListAFileOrAScheduler) {
  const auto hosts = hosts_from("vm0:2,10.0.0.1:0");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].name, "vm0");
  EXPECT_EQ(hosts[0].gpus, 2);
  EXPECT_EQ(hosts[1].gpus, 0);
  EXPECT_FALSE(are_unnamed(hosts));
  const TemporaryFolder folder;
  EXPECT_EQ(hosts_from(folder.write("hostfile", "a slots=8\n#b slots=1\n").string()).size(), 1u);
  const auto unnamed = hosts_from("3*8");
  EXPECT_TRUE(are_unnamed(unnamed));
  EXPECT_EQ(unnamed.size(), 3u);
  EXPECT_EQ(unnamed[2].gpus, 8);
  EXPECT_NE(address_of(unnamed[0]), address_of(unnamed[1]));
}

}  // namespace
}  // namespace nearmetal
