#include "models/gpu_share.h"

#include <gtest/gtest.h>

namespace nearmetal {
namespace {

// A part of an H200: 132 multiprocessors, which can be split into eights.
SmGroups of_132(size_t index, const std::vector<int64_t>& percents) {
  return sm_groups_of({index, percents}, 132, 8);
}

TEST(GpuShare, EvenPartsAreAGroupEach) {
  const SmGroups last = of_132(3, {25, 25, 25, 25});
  EXPECT_EQ(last.multiprocessors, 32);
  EXPECT_EQ(last.first, 3);
  EXPECT_EQ(last.count, 1);
  EXPECT_EQ(last.needed, 4);
  EXPECT_EQ(of_132(0, {50, 50}).multiprocessors, 64);
  EXPECT_EQ(of_132(6, std::vector<int64_t>(7, 14)).multiprocessors, 16);
}

TEST(GpuShare, UnevenPartsAreOfTheLargestGroupsThatMakeThemAll) {
  const SmGroups most = of_132(1, {25, 75});
  EXPECT_EQ(most.multiprocessors, 32);
  EXPECT_EQ(most.first, 1);
  EXPECT_EQ(most.count, 3);
  EXPECT_EQ(most.needed, 4);
  const SmGroups odd = of_132(1, {70, 30});
  EXPECT_EQ(odd.multiprocessors, 8) << "88 and 32";
  EXPECT_EQ(odd.first, 11);
  EXPECT_EQ(odd.count, 4);
}

TEST(GpuShare, TheSmallestGroupIsTheLeast) {
  const SmGroups tiny = of_132(0, {1});
  EXPECT_EQ(tiny.multiprocessors, 8);
  EXPECT_EQ(tiny.count, 1);
}

}  // namespace
}  // namespace nearmetal
