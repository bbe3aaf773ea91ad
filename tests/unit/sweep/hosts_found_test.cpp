#include "bench/sweep/hosts_found.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/text.h"
#include "bench/sweep/supported_layouts.h"
#include "comm/layout/layout.h"
#include "tests/support/refusal.h"
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

// "a:8 b:8": the hosts of a file or list, with the GPUs of each.
std::string hosts_in(const std::string& argument) {
  std::vector<std::string> texts;
  for (const Host& host : hosts_from(argument)) {
    texts.push_back((host.user ? *host.user + "@" : "") + host.name + ":" +
                    std::to_string(host.gpus));
  }
  return joined(texts, " ");
}

// The words are those of orte/util/hostfile/hostfile_lex.l of Open MPI 4.1. Files in these forms
// are in the docs of Open MPI, microsoft/mscclpp (a user), MooreThreads/SimuMax (names alone),
// Azure/azurehpc (PBS) and intel/mpi-benchmarks (NAME:N).
TEST(Hosts, FilesOfMpirunHaveManyForms) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    return hosts_in(folder.write("hostfile", text).string());
  };
  EXPECT_EQ(read("n1 slots=8 max_slots=8\nn2  slots=8 max-slots=16\r\n"), "n1:8 n2:8");
  EXPECT_EQ(read("# all\n\nn1 slots = 4 # the first\n\tn2\tslots= 2\t\n// none\n"), "n1:4 n2:2");
  EXPECT_EQ(read("n1 cpu=4 cpu-max=4\nn2 sockets=2 cores_per_socket=8 count=3"), "n1:4 n2:3");
  EXPECT_EQ(read("n1\nn1\nn2\nn2\n"), "n1:2 n2:2") << "PBS_NODEFILE: a line for each slot";
  EXPECT_EQ(read("n1\nn2\nn1\n"), "n1:2 n2:1");
  EXPECT_EQ(read("n1 slots=2\nn1 slots=2\n"), "n1:4");
  EXPECT_EQ(read("mpi@10.0.0.4 slots=8\n"), "mpi@10.0.0.4:8");
  EXPECT_EQ(read("n1:4\nn2:2\n"), "n1:4 n2:2");
  EXPECT_EQ(read("gpu[08-10] slots=8\n"), "gpu08:8 gpu09:8 gpu10:8");
}

TEST(Hosts, OfSlurmAreNamedByTheirNumbers) {
  EXPECT_EQ(hosts_in("gpu[01-03]:8"), "gpu01:8 gpu02:8 gpu03:8");
  EXPECT_EQ(hosts_in("n[7,9-11]:4,login:0"), "n7:4 n9:4 n10:4 n11:4 login:0");
  EXPECT_EQ(hosts_in("r[1-2]n[0-1]-ib:1"), "r1n0-ib:1 r1n1-ib:1 r2n0-ib:1 r2n1-ib:1");
  EXPECT_EQ(hosts_in("n[098-101]:1"), "n098:1 n099:1 n100:1 n101:1");
}

TEST(Hosts, WhatCannotBeReadIsRefusedWithItsPlace) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    const std::string path = folder.write("hostfile", text).string();
    return refusal_of([&] { hosts_from(path); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal("n1\nn2\n"),
              HasSubstr("hostfile must be NAME slots=GPUS: 'n1' does not say how many"));
  EXPECT_THAT(refusal("n1 slots=8\nn2\n"), HasSubstr("'n2' does not say how many GPUs"));
  EXPECT_THAT(refusal("n1 slots=8\nn2 slots\n"), HasSubstr("line 2 of "));
  EXPECT_THAT(refusal("n1 slots=8 port=2222\n"), HasSubstr("hostfile must be NAME slots=GPUS"));
  EXPECT_THAT(refusal("n1 slots=8x\n"), HasSubstr("hostfile must be NAME slots=GPUS"));
  EXPECT_THAT(refusal("n1 slots=9999\n"), HasSubstr("the GPUs of 'n1'"));
  EXPECT_THAT(refusal("^n1 slots=8\n"), HasSubstr("'^n1' is no name of a host"));
  EXPECT_THAT(refusal("n[1-x] slots=8\n"), HasSubstr("'n[1-x]' must be as gpu[01-08,10]"));
  EXPECT_THAT(refusal("# none\n"), HasSubstr("there is no host"));
  EXPECT_THAT(refusal(std::string(100000, '[') + "\n"), HasSubstr("no name of a host"));
  for (const char* address : {"fe80::1", "[fe80::1]", "2001:db8::4:1"}) {
    EXPECT_THAT(refusal(std::string(address) + " slots=8\n"),
                HasSubstr("mpirun takes no IPv6 addresses"));
  }
  EXPECT_THAT(refusal_of([] { hosts_from("[fe80::1]:8"); }),
              HasSubstr("mpirun takes no IPv6 addresses"));
  EXPECT_THAT(refusal_of([] { hosts_from("n[1-5000]:8"); }), HasSubstr("more than 4096 hosts"));
  EXPECT_THAT(refusal_of([] { hosts_from("n[1-4000]m[1-4000]:8"); }), HasSubstr("more than 4096"));
  EXPECT_THAT(refusal_of([] { hosts_from("gpu[01-08]"); }),
              HasSubstr("does not say how many GPUs"));
}

}  // namespace
}  // namespace nearmetal
