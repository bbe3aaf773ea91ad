#include "bench/environment/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/environment/gpu.h"
#include "reports/json/json.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

TEST(Environment, ReadsTheSystemsFiles) {
  const TemporaryFolder root;
  root.write("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
  root.write("proc/cpuinfo",
             "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
             "model name\t: AMD EPYC: 9B14\nstepping\t: 1\nmicrocode\t: 0xa101148\n"
             "cache size\t: 1024 KB\nflags\t\t: fpu hypervisor avx2\n"
             "processor\t: 1\nmodel name\t: other\n");
  root.write("proc/meminfo", "MemTotal:       24600000 kB\nMemFree: 1 kB\n");
  root.write("proc/self/cgroup", "0::/jobs/one\n");
  root.write("sys/fs/cgroup/jobs/one/cgroup.controllers", "cpu memory\n");
  root.write("sys/fs/cgroup/jobs/one/cpu.max", "150000 100000\n");
  root.write("sys/fs/cgroup/jobs/one/memory.max", "8589934592\n");
  const Environment found = find_environment(root.path());
  EXPECT_EQ(*found.distribution, "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(*found.cpu_model, "AMD EPYC: 9B14");
  EXPECT_EQ(*cpu_id_of(found), "AuthenticAMD 25 17 1");
  EXPECT_EQ(*found.processor.microcode, "0xa101148");
  EXPECT_EQ(*found.processor.cache, "1024 KB");
  EXPECT_EQ(*found.memory_bytes, int64_t{24600000} * 1024);
  EXPECT_DOUBLE_EQ(*found.cpu_quota, 1.5);
  EXPECT_EQ(*found.memory_limit_bytes, 8589934592);
  EXPECT_TRUE(*found.hypervisor_cpu_flag);
  EXPECT_GE(found.usable_cpus, 1);
  EXPECT_LE(found.usable_cpus, found.logical_cpus);
}

TEST(Environment, AControlGroupHasTheLimitsOfThoseAboveIt) {
  const TemporaryFolder root;
  root.write("proc/self/cgroup", "0::/jobs/one/\n");
  root.write("sys/fs/cgroup/jobs/one/cgroup.controllers", "memory\n");
  root.write("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  root.write("sys/fs/cgroup/jobs/memory.max", "4294967296\n");
  root.write("sys/fs/cgroup/jobs/cpu.max", "50000 100000\n");
  const Environment found = find_environment(root.path());
  EXPECT_DOUBLE_EQ(*found.cpu_quota, 0.5) << "the leaf has no controller of CPUs";
  EXPECT_EQ(*found.memory_limit_bytes, 4294967296);
}

TEST(Environment, ReadsTheLimitsOfOlderControlGroups) {
  const TemporaryFolder root;
  root.write("proc/self/cgroup",
             "5:cpuset:/jobs\n4:cpu,cpuacct:/jobs/one\n3:memory:/docker/abc\n0::/jobs/one\n");
  const std::string cpu = "sys/fs/cgroup/cpu,cpuacct/";
  root.write(cpu + "jobs/one/cpu.cfs_quota_us", "250000\n");
  root.write(cpu + "jobs/one/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8589934592\n");
  EXPECT_DOUBLE_EQ(*find_environment(root.path()).cpu_quota, 2.5);
  EXPECT_EQ(*find_environment(root.path()).memory_limit_bytes, 8589934592)
      << "as a container sees its own group";
  root.write(cpu + "jobs/one/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const Environment found = find_environment(root.path());
  EXPECT_EQ(found.cpu_quota.reason, "no limit is set");
  EXPECT_EQ(found.memory_limit_bytes.reason, "no limit is set");
}

TEST(Environment, WhatIsNotThereIsUnknownWithItsReason) {
  const TemporaryFolder root;
  root.write("proc/cpuinfo", "processor : 0\nflags : fpu not_a_hypervisor\n");
  root.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/memory.max", "max\n");
  const Environment found = find_environment(root.path());
  EXPECT_FALSE(*found.hypervisor_cpu_flag);
  EXPECT_FALSE(found.distribution);
  EXPECT_THAT(found.distribution.reason, HasSubstr("os-release"));
  EXPECT_THAT(found.cpu_model.reason, HasSubstr("model name"));
  EXPECT_EQ(found.cpu_quota.reason, "no limit is set");
  EXPECT_EQ(found.memory_limit_bytes.reason, "no limit is set");
  EXPECT_FALSE(found.memory_bytes);
}

TEST(Environment, OnlyListedVariablesAreRecorded) {
  setenv("NCCL_TEST_ONLY", "ring=1", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "hush", 1);
  const Environment found = find_environment();
  unsetenv("NCCL_TEST_ONLY");
  unsetenv("AWS_SECRET_ACCESS_KEY");
  for (const char* name : {"GOMP_SPINCOUNT", "KMP_AFFINITY", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES",
                           "HWLOC_XMLFILE", "PMIX_MCA_gds"}) {
    EXPECT_TRUE(may_record_variable(name)) << name;
  }
  EXPECT_EQ(found.variables.at("NCCL_TEST_ONLY"), "ring=1");
  for (const auto& [name, value] : found.variables) EXPECT_TRUE(may_record_variable(name)) << name;
  EXPECT_FALSE(may_record_variable("MY_CUDA_TOKEN"));
  EXPECT_FALSE(may_record_variable("PATH"));
  EXPECT_TRUE(may_record_variable("CUDA_VISIBLE_DEVICES"));
  EXPECT_TRUE(may_record_variable("OMP_NUM_THREADS"));
}

TEST(Environment, OfPathsOfLibrariesItIsRecordedWhetherTheyAreSet) {
  unsetenv("LD_AUDIT");
  setenv("LD_LIBRARY_PATH", "/home/somebody", 1);
  const Environment found = find_environment();
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(found.ld_library_path, true);
  EXPECT_EQ(found.ld_audit, false);
  EXPECT_FALSE(found.variables.contains("LD_LIBRARY_PATH"));
}

TEST(Environment, UnknownPartsOfAGpuStayUnknown) {
  DeviceInfo device;
  device.name = "NVIDIA H200";
  device.multiprocessors = 132;
  const Gpu gpu = describe_gpu(device);
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(*gpu.multiprocessors, 132);
  EXPECT_FALSE(gpu.uuid);
  EXPECT_FALSE(gpu.memory_bytes);
}

TEST(Environment, LimitsAndNetworkComeFromTheSystem) {
  const TemporaryFolder root;
  root.write("proc/meminfo", "HugePages_Total: 8\nHugepagesize: 2048 kB\n");
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  root.write("proc/sys/kernel/numa_balancing", "1\n");
  root.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  root.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
  root.write("sys/class/net/eth0/operstate", "up\n");
  root.write("sys/class/net/eth0/speed", "25000\n");
  root.write("sys/class/net/eth0/mtu", "9000\n");
  root.write("sys/class/net/eth0/device/numa_node", "-1\n");
  root.write("sys/class/net/eth0/device/infiniband/mlx5_0/x", "");
  root.write("sys/class/net/lo/mtu", "65536\n");
  const Environment found = find_environment(root.path());
  EXPECT_EQ(*found.limits.huge_pages, 8);
  EXPECT_EQ(*found.limits.huge_page_bytes, 2 << 20);
  EXPECT_EQ(*found.limits.transparent_huge_pages, "madvise");
  EXPECT_TRUE(*found.limits.numa_balancing);
  EXPECT_EQ(*found.processor.governor, "performance, powersave");
  ASSERT_EQ(found.network.size(), 1);
  EXPECT_EQ(found.network[0].name, "eth0");
  EXPECT_EQ(*found.network[0].bits_per_second, 25'000'000'000);
  EXPECT_EQ(*found.network[0].numa_node, -1);
  EXPECT_EQ(*found.network[0].rdma_device, "mlx5_0");
  EXPECT_FALSE(*found.network[0].virtual_function);
}

TEST(Environment, ThisMachineHasCoresAndNumaNodes) {
  const Environment found = find_environment();
  EXPECT_GE(*found.processor.cores, 1);
  EXPECT_GE(*found.processor.numa_nodes, 1);
}

TEST(HostFacts, AreAFlatObjectWithinBounds) {
  const TemporaryFolder folder;
  const auto facts = read_host_facts(
      folder.write("facts.json", R"({"acs": "off", "numa_pinned": true, "vcpus": 16})"));
  EXPECT_EQ(facts, (std::map<std::string, std::string>{
                       {"acs", "off"}, {"numa_pinned", "true"}, {"vcpus", "16"}}));
  for (const std::string& bad :
       {std::string("[1]"), std::string("{"), std::string(R"({"a": {"b": 1}})"),
        std::string(R"({"a": null})"), "{\"a\": \"" + std::string(1001, 'x') + "\"}",
        std::string(70000, ' ')}) {
    try {
      read_host_facts(folder.write("bad.json", bad));
      ADD_FAILURE() << bad.substr(0, 40);
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("bad.json"));
    }
  }
  EXPECT_THROW(read_host_facts(folder / "none.json"), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
