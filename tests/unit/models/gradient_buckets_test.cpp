#include <gtest/gtest.h>

#include "models/memory_plan.h"

namespace nearmetal {
namespace {

// Eight gradients of 10, complete in the order of their places but for the fourth.
const std::map<int64_t, size_t> slices{{0, 1},  {10, 2}, {20, 3}, {30, 9},
                                       {40, 5}, {50, 6}, {60, 7}, {70, 12}};

std::vector<int64_t> begins(int64_t total, int64_t wanted) {
  std::vector<int64_t> found;
  int64_t end = 0;
  size_t complete = 0;
  for (const BucketRange& bucket : cut_buckets(slices, total, wanted)) {
    EXPECT_EQ(bucket.begin, end) << "no gap, no overlap";
    EXPECT_GE(bucket.complete_after, complete) << "one after another";
    end = bucket.end;
    complete = bucket.complete_after;
    found.push_back(bucket.begin);
  }
  EXPECT_EQ(end, total);
  EXPECT_EQ(complete, 12u);
  return found;
}

TEST(GradientBuckets, AreAtLeastAsLargeAsWanted) {
  EXPECT_EQ(begins(80, 30), (std::vector<int64_t>{0, 30, 60}));
  EXPECT_EQ(begins(80, 25), (std::vector<int64_t>{0, 30, 60}));
  EXPECT_EQ(begins(80, 1), (std::vector<int64_t>{0, 10, 20, 30, 40, 50, 60, 70}));
  EXPECT_EQ(begins(80, 1000), (std::vector<int64_t>{0}));
}

TEST(GradientBuckets, NoneIsCompleteBeforeTheOneInFront) {
  const auto buckets = cut_buckets(slices, 80, 20);
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_EQ(buckets[0].complete_after, 2u);
  EXPECT_EQ(buckets[1].complete_after, 9u);
  EXPECT_EQ(buckets[2].complete_after, 9u);
  EXPECT_EQ(buckets[3].complete_after, 12u);
}

// Padding makes the gradient larger than the sum of its slices; here the first are the large ones.
TEST(GradientBuckets, TheEndOfAllIsSentApartAsNothingHidesIt) {
  const std::map<int64_t, size_t> shrinking{{0, 1}, {600, 2}, {900, 3}, {990, 4}, {996, 5}};
  const auto begins_of = [&](int64_t wanted) {
    std::vector<int64_t> found;
    for (const BucketRange& bucket : cut_buckets(shrinking, 1000, wanted)) {
      found.push_back(bucket.begin);
    }
    return found;
  };
  EXPECT_EQ(begins_of(10000), (std::vector<int64_t>{0, 990}));
  EXPECT_EQ(begins_of(500), (std::vector<int64_t>{0, 600, 990}));
  EXPECT_EQ(begins_of(10), (std::vector<int64_t>{0, 600, 900, 990})) << "which is one bucket";
  EXPECT_EQ(begins_of(0), (std::vector<int64_t>{0})) << "all at the end";
}

TEST(GradientBuckets, TheEndIsAtMostAHundredthOfAll) {
  const auto buckets_with_end = [](int64_t begin) {
    return cut_buckets({{0, 1}, {begin, 2}}, 1000, 10000).size();
  };
  EXPECT_EQ(buckets_with_end(990), 2u);
  EXPECT_EQ(buckets_with_end(989), 1u);
}

}  // namespace
}  // namespace nearmetal
