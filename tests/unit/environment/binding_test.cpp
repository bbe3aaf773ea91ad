#include "bench/environment/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwloc.h>
#include <sched.h>

#include <future>
#include <memory>
#include <string>

#include "comm/layout/layout.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

Topology made_up(const char* description) {
  hwloc_topology_t topology = nullptr;
  hwloc_topology_init(&topology);
  EXPECT_EQ(hwloc_topology_set_synthetic(topology, description), 0);
  EXPECT_EQ(hwloc_topology_load(topology), 0);
  return {topology, hwloc_topology_destroy};
}

// The list of CPUs, or the reason.
std::string near(const Topology& topology, int64_t node, const std::string& allowed) {
  const auto cpus = cpus_of_node(topology.get(), node, parse_cpu_list(allowed));
  return cpus ? to_cpu_list(*cpus) : cpus.reason;
}

Gpu gpu_at(const Maybe<int64_t>& node) {
  Gpu gpu;
  gpu.numa_node = node;
  return gpu;
}

TEST(Binding, IsToTheNodeOfTheGpu) {
  const Gpu gpu = gpu_at(int64_t{1});
  EXPECT_EQ(*node_to_bind_to({}, &gpu), 1);
}

TEST(Binding, IsNotWhereTheNodeIsNotKnown) {
  const Gpu nowhere = gpu_at(int64_t{-1}), silent = gpu_at(Unknown{"no such file"});
  EXPECT_THAT(node_to_bind_to({}, &nowhere).reason, HasSubstr("-1"));
  EXPECT_THAT(node_to_bind_to({}, &silent).reason, HasSubstr("no such file"));
  EXPECT_FALSE(node_to_bind_to({}, nullptr));
}

TEST(Binding, CanBeSwitchedOff) {
  const Gpu gpu = gpu_at(int64_t{1});
  RunConfig config;
  config.bind = Bind::off;
  EXPECT_EQ(node_to_bind_to(config, &gpu).reason, "--bind off");
}

TEST(Binding, TakesTheCpusOfTheNodeThatTheProcessMayUse) {
  const Topology two_sockets = made_up("package:2 [numa] core:8 pu:1");
  EXPECT_EQ(near(two_sockets, 0, "0-15"), "0-7");
  EXPECT_EQ(near(two_sockets, 1, "0-15"), "8-15");
  EXPECT_EQ(near(two_sockets, 1, "0-9,12"), "8-9,12") << "never more than the launcher gave";
  EXPECT_EQ(near(made_up("core:4 pu:1"), 0, "0-3"), "0-3");
}

TEST(Binding, HyperthreadsOfANodeNeedNotBeNeighbours) {
  const Topology interleaved = made_up("package:2 [numa] core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
  EXPECT_EQ(near(interleaved, 0, "0-7"), "0-1,4-5");
  EXPECT_EQ(near(interleaved, 1, "0-7"), "2-3,6-7");
}

TEST(Binding, LeavesAProcessThatIsKeptElsewhere) {
  const Topology two_sockets = made_up("package:2 [numa] core:8 pu:1");
  EXPECT_EQ(near(two_sockets, 1, "0-3"),
            "NUMA node 1 has the CPUs 8-15, but the process may only use 0-3");
  EXPECT_EQ(near(two_sockets, 2, "0-15"), "NUMA node 2 is not visible");
}

TEST(Binding, HoldsForThreadsThatRunAlready) {
  std::promise<void> go;
  std::future<int64_t> other = std::async(std::launch::async, [&] {
    go.get_future().wait();
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? int64_t{CPU_COUNT(&mask)} : int64_t{-1};
  });
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  Binding bound;
  for (int64_t node = 0; node < 64 && !bound.numa_node; ++node) bound = bind_to_node(node);
  go.set_value();
  EXPECT_EQ(other.get(), 1) << "the threads are where the one that binds may be";
  EXPECT_EQ(parse_cpu_list(bound.cpus).size(), 1u);
  EXPECT_TRUE(bound.memory_node || !bound.memory_node.reason.empty());
  sched_setaffinity(0, sizeof before, &before);
}

TEST(Binding, WithoutANodeChangesNothing) {
  const Binding kept = bind_to_node(Unknown{"--bind off"});
  EXPECT_FALSE(parse_cpu_list(kept.cpus).empty());
  EXPECT_EQ(kept.numa_node.reason, "--bind off");
  EXPECT_EQ(kept.memory_node.reason, "--bind off");
}

}  // namespace
}  // namespace nearmetal
