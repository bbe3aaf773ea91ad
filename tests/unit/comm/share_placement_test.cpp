#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/launch/launch_plan.h"
#include "comm/layout/gpu_shares.h"
#include "tests/support/sample_hosts.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SharePlacement, JobsThatShareTakeTheSameGpu) {
  const Job plain{{{"a", {0}, 0}}};
  Job half = plain, quarter = plain;
  half.share = Share{SharingMode::mps, 50, 40};
  quarter.share = Share{SharingMode::mps, 25};
  const Placement placement = place(listed({half, quarter, quarter}), {host("a", 1)});
  EXPECT_THAT(places(placement), ElementsAre("a:0", "a:0", "a:0"));
  EXPECT_EQ(placement.share()->mode, SharingMode::mps);
  const auto& limited = placement.jobs[0].ranks[0].variables;
  EXPECT_EQ(limited.at("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "50");
  EXPECT_EQ(limited.at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=40G");
  EXPECT_FALSE(placement.jobs[1].ranks[0].variables.contains("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"));
  EXPECT_THAT(refusal_of_hosts(listed({plain, plain}), {host("a", 1)}), HasSubstr("taken already"));
  Job slice = plain;
  slice.share = Share{SharingMode::timeslice};
  const Placement slices = place(listed({slice, slice}), {host("a", 1)});
  EXPECT_EQ(slices.jobs[1].ranks[0].variables.at("CUDA_MPS_PIPE_DIRECTORY"), "/dev/null")
      << "not the daemon that may be there";
}

TEST(SharePlacement, JobsWithMultiprocessorsOfTheirOwnAreClientsOfMps) {
  Job large{{{"a", {0}, 0}}}, small = large, elsewhere{{{"a", {1}, 0}}};
  large.share = Share{SharingMode::sm, 75, 40};
  small.share = elsewhere.share = Share{SharingMode::sm, 25};
  LaunchPlan plan;
  plan.placements = {place(listed({large, elsewhere, small}), {host("a", 2)})};
  plan.workloads.resize(1);
  plan.file.layouts.resize(1);
  const auto& variables = plan.placements[0].jobs[0].ranks[0].variables;
  EXPECT_FALSE(variables.contains("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")) << "the part is the limit";
  EXPECT_FALSE(variables.contains("CUDA_MPS_PIPE_DIRECTORY"));
  EXPECT_EQ(variables.at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=40G");
  const auto commands = commands_of(plan, 0);
  EXPECT_THAT(commands[0], testing::IsSupersetOf({"--gpu-part=0:75,25", "--through-mps"}));
  EXPECT_THAT(commands[1], testing::Contains("--gpu-part=0:25")) << "another GPU";
  const auto visible = [](const Placement& placement, size_t job) {
    return placement.jobs[job].ranks[0].variables.at("CUDA_VISIBLE_DEVICES");
  };
  EXPECT_EQ(visible(plan.placements[0], 1), "1");
  const Placement on_second = place(listed({elsewhere, elsewhere}), {host("a", 2)});
  EXPECT_EQ(visible(on_second, 1), "0") << "of the GPUs that the daemon has";
  EXPECT_EQ(on_second.jobs[1].ranks[0].gpu, 1);
  EXPECT_THAT(commands[2], testing::Contains("--gpu-part=1:75,25"));
}

TEST(SharePlacement, ANeighbourOnlyDisturbs) {
  Job trains{{{"a", {0}, 0}}};
  trains.share = Share{SharingMode::timeslice};
  Job copies = trains;
  copies.stress = NeighbourLoad::copy;
  LaunchPlan plan;
  plan.placements = {place(listed({copies, trains}), {host("a", 1)})};
  Workload& workload = plan.workloads.emplace_back();
  workload.config.batch = 64;
  workload.given = {"batch"};
  plan.file.layouts.resize(1);
  EXPECT_THAT(plan.placements[0].training_jobs(), testing::ElementsAre(1));
  const auto commands = commands_of(plan, 0);
  EXPECT_THAT(commands[0], testing::IsSupersetOf({"stress", "copy", "--device=cuda"}));
  EXPECT_THAT(commands[0], testing::Not(testing::Contains("--batch=64")));
  EXPECT_THAT(commands[1], testing::IsSupersetOf({"run", "--batch=64", "--sharers=2"}));
}

TEST(SharePlacement, JobsThatShareCpusHaveAllOfThem) {
  Job job{{{"a", {}, 2}}};
  job.share = Share{SharingMode::timeslice};
  const Placement placement = place(listed({job, job}), {cpu_host("a", "0-3")});
  for (const PlacedJob& placed : placement.jobs) {
    EXPECT_EQ(placed.ranks[0].cpus, "0-1");
    EXPECT_EQ(placed.ranks[1].cpus, "2-3");
    EXPECT_THAT(placed.ranks[0].variables,
                testing::Not(testing::Contains(testing::Key("CUDA_MPS_PIPE_DIRECTORY"))));
    EXPECT_EQ(placed.ranks[0].variables.at("OMP_WAIT_POLICY"), "passive");
  }
}

TEST(FractionLayouts, AreTheWaysToShareOneGpu) {
  const std::vector<Layout> layouts = fraction_layouts(host("a", 2), {4});
  std::vector<std::string> names;
  for (const Layout& layout : layouts) names.push_back(layout.name);
  EXPECT_THAT(names, ElementsAre("alone", "4 jobs, serial", "4 jobs, time slices", "4 jobs, MPS",
                                 "4 jobs, MPS 25 percent", "4 jobs, SMs 25 percent",
                                 "alone, MPS 25 percent", "alone, SMs 25 percent"));
  EXPECT_EQ(layouts[4].jobs.size(), 4);
  EXPECT_EQ(layouts[4].jobs[3].share, (Share{SharingMode::mps, 25}));
  EXPECT_EQ(*fraction_layouts(host("a", 1), {7})[4].jobs[0].share->threads_percent, 14);
  for (const Layout& layout : layouts) EXPECT_NO_THROW(place(layout, {host("a", 2)}));
  Host hidden = host("a", 2);
  hidden.visible_gpus = {1};
  EXPECT_THAT(fraction_layouts(hidden, {4})[4].jobs[3].instances[0].gpus, ElementsAre(1));
  EXPECT_EQ(fraction_layouts(cpu_host("a", "0-3"), {2}).size(), 3) << "no MPS without a GPU";
}

TEST(FractionLayouts, BesideNeighboursOneJobTrains) {
  const std::vector<Layout> layouts = fraction_layouts(
      host("a", 1), {.jobs = 3, .neighbours = {NeighbourLoad::copy, NeighbourLoad::pcie}});
  EXPECT_EQ(layouts.size(), 1 + 2 * 4 + 2);
  EXPECT_EQ(layouts[1].name, "1 job, 2 copy, time slices");
  EXPECT_EQ(layouts[8].name, "1 job, 2 pcie, SMs 33 percent");
  for (const Layout& layout : layouts) {
    EXPECT_FALSE(layout.jobs[0].stress);
    if (layout.jobs.size() > 1) {
      EXPECT_TRUE(layout.jobs[1].stress && layout.jobs[2].stress);
    }
    EXPECT_NO_THROW(place(layout, {host("a", 1)}));
  }
}

}  // namespace
}  // namespace nearmetal
