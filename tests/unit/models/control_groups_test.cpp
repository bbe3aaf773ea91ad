#include "models/control_groups.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

TEST(ControlGroups, OfVersion2AreHeldToTheLimitsOfThoseAbove) {
  const TemporaryFolder root;
  root.write("proc/self/cgroup", "0::/jobs/one\n");
  root.write("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/jobs/one/memory.max", "9000\n");
  root.write("sys/fs/cgroup/jobs/one/memory.current", "5000\n");
  root.write("sys/fs/cgroup/jobs/one/memory.stat", "anon 1\ninactive_file 700\n");
  root.write("sys/fs/cgroup/jobs/cpu.max", "150000 100000\n");
  root.write("sys/fs/cgroup/jobs/memory.max", "20000\n");
  const GroupLimits limits = group_limits(root.path());
  EXPECT_DOUBLE_EQ(limits.cpus.value(), 1.5);
  EXPECT_EQ(limits.memory_bytes, 9000);
  EXPECT_EQ(limits.memory_left_bytes, 4700);
}

TEST(ControlGroups, OfVersion1HaveTheSameLimits) {
  const TemporaryFolder root;
  root.write("proc/self/cgroup",
             "5:cpuset:/\n4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n0::/x\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "20000\n");  // as a container sees it
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9000\n");
  root.write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "5000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const GroupLimits limits = group_limits(root.path());
  EXPECT_DOUBLE_EQ(limits.cpus.value(), 0.2);
  EXPECT_EQ(limits.memory_bytes, 9000);
  EXPECT_EQ(limits.memory_left_bytes, 4000);
}

TEST(ControlGroups, NoLimitIsNotUnknown) {
  const TemporaryFolder root;
  EXPECT_FALSE(group_limits(root.path()).knows_cpus);
  root.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  const GroupLimits limits = group_limits(root.path());
  EXPECT_TRUE(limits.knows_cpus);
  EXPECT_FALSE(limits.knows_memory);
  EXPECT_EQ(limits.cpus, std::nullopt);
}

TEST(ControlGroups, SayHowOftenTheirQuotaStoppedThreads) {
  const TemporaryFolder root;
  root.write("proc/self/cgroup", "4:cpu:/job\n");
  EXPECT_TRUE(group_throttling(root.path()).empty());
  root.write("sys/fs/cgroup/cpu/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.stat", "nr_periods 264\nnr_throttled 130\n");
  const std::vector<GroupThrottling> found = group_throttling(root.path());
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].throttled, 130);
  EXPECT_EQ(found[0].periods, 264);
  EXPECT_EQ(found[1].periods, 0) << "it has no quota";
}

TEST(ControlGroups, APartOfACpuIsWorthAThread) {
  EXPECT_EQ(threads_within(8, 0.2), 1);
  EXPECT_EQ(threads_within(8, 2.5), 2);
  EXPECT_EQ(threads_within(2, 16.0), 2);
  EXPECT_EQ(threads_within(2, {}), 2);
}

}  // namespace
}  // namespace nearmetal
