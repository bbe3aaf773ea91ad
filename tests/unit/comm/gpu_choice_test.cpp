
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/layout/short_form.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using Gpus = std::vector<int64_t>;

// NVLink connects 0 with 2 and 1 with 3; the last two are near a NIC.
Host host_of_pairs() {
  Host host;
  host.name = "here";
  host.gpus = 4;
  host.places = {{{2}, PciDistance::sys, "mlx5_0"},
                 {{3}, PciDistance::sys, "mlx5_0"},
                 {{0}, PciDistance::pix, "mlx5_0"},
                 {{1}, PciDistance::phb, "mlx5_1"}};
  return host;
}

TEST(GpuChoice, TakesThoseThatNvlinkConnects) {
  const Host host = host_of_pairs();
  const Gpus all = {0, 1, 2, 3};
  EXPECT_THAT(choose_gpus(host, all, 2, false), ElementsAre(0, 2));
  EXPECT_THAT(choose_gpus(host, {1, 2, 3}, 2, false), ElementsAre(1, 3));
  EXPECT_THAT(choose_gpus(host, all, 1, false), ElementsAre(0));
  EXPECT_THAT(choose_gpus(host, all, 3, false), ElementsAre(0, 1, 2)) << "one pair in any three";
  EXPECT_THAT(choose_gpus(host, all, 4, false), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(choice_text(host, {0, 2}, false), "GPUs 0, 2 of here: NVLink connects them all");
  EXPECT_EQ(choice_text(host, {0, 1, 2}, false),
            "GPUs 0, 1, 2 of here: NVLink connects 1 of 3 pairs");
  EXPECT_EQ(choice_text(host, {0, 1}, false), "");
}

TEST(GpuChoice, OverSeveralHostsTakesThoseNearANic) {
  const Host host = host_of_pairs();
  EXPECT_THAT(choose_gpus(host, {0, 1, 2, 3}, 1, true), ElementsAre(2));
  EXPECT_THAT(choose_gpus(host, {0, 1, 2, 3}, 2, true), ElementsAre(0, 2)) << "NVLink comes first";
  EXPECT_EQ(choice_text(host, {2}, true), "GPU 2 of here: nearest NIC: mlx5_0 (PIX)");
  EXPECT_EQ(choice_text(host, {2, 3}, true),
            "GPUs 2, 3 of here: nearest NICs: mlx5_0 (PIX), mlx5_1 (PHB)");
  EXPECT_EQ(choice_text(host, {0, 1}, true), "GPUs 0, 1 of here: nearest NIC: mlx5_0 (SYS)");
}

TEST(GpuChoice, WhereNothingIsKnownTakesTheFirst) {
  Host host = host_of_pairs();
  host.places.clear();
  EXPECT_THAT(choose_gpus(host, {1, 2, 3}, 2, true), ElementsAre(1, 2));
  EXPECT_EQ(choice_text(host, {1, 2}, true), "");
  host.places.resize(4);
  EXPECT_THAT(choose_gpus(host, {1, 2, 3}, 2, true), ElementsAre(1, 2));
}

TEST(GpuChoice, JobsOfAShapeHaveGpusThatNvlinkConnects) {
  Layout layout;
  layout.shape = "2*(1x1x2)";
  const std::vector<Job> jobs = shape_jobs(layout, {host_of_pairs()});
  EXPECT_THAT(jobs.at(0).instances.at(0).gpus, ElementsAre(0, 2));
  EXPECT_THAT(jobs.at(1).instances.at(0).gpus, ElementsAre(1, 3));
}

}  // namespace
}  // namespace nearmetal
