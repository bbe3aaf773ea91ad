#include "models/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace nearmetal {
namespace {

bool alive_together(const BufferLife& left, const BufferLife& right) {
  return left.first_use <= right.last_use && right.first_use <= left.last_use;
}

void expect_valid(const std::vector<BufferLife>& buffers, const MemoryPlan& plan,
                  int64_t alignment) {
  ASSERT_EQ(plan.offsets.size(), buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_GE(plan.offsets[i], 0);
    EXPECT_EQ(plan.offsets[i] % alignment, 0) << i;
    EXPECT_LE(plan.offsets[i] + buffers[i].bytes, plan.total_bytes) << i;
    for (size_t j = 0; j < i; ++j) {
      if (!alive_together(buffers[i], buffers[j])) continue;
      const bool apart = plan.offsets[i] + buffers[i].bytes <= plan.offsets[j] ||
                         plan.offsets[j] + buffers[j].bytes <= plan.offsets[i];
      EXPECT_TRUE(apart) << "buffers " << i << " and " << j << " overlap";
    }
  }
}

// The most bytes in use at one time: no plan can do with less.
int64_t peak_bytes(const std::vector<BufferLife>& buffers) {
  int64_t peak = 0;
  for (const BufferLife& at : buffers) {
    int64_t live = 0;
    for (const BufferLife& buffer : buffers) {
      if (buffer.first_use <= at.first_use && at.first_use <= buffer.last_use) live += buffer.bytes;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

TEST(MemoryPlan, NeverOverlapsBuffersInUseTogether) {
  std::mt19937 random(1);
  const auto up_to = [&](int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit)(random);
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<BufferLife> buffers(1 + up_to(60));
    for (BufferLife& buffer : buffers) {
      buffer.first_use = static_cast<int>(up_to(40));
      buffer.last_use = buffer.first_use + static_cast<int>(up_to(20));
      buffer.bytes = up_to(1) == 0 ? up_to(100) : up_to(1'000'000);
    }
    const int64_t alignment = int64_t{1} << up_to(12);
    const MemoryPlan plan = plan_memory(buffers, alignment);
    expect_valid(buffers, plan, alignment);
    EXPECT_GE(plan.total_bytes, peak_bytes(buffers));
  }
}

// Activations live until their turn in the backward pass, gradients from one operation to the next
// or, at a shortcut, over a block; sizes fall from stage to stage as in a ResNet.
std::vector<BufferLife> training_chain(int blocks_per_stage) {
  const int layers = 4 * blocks_per_stage * 3;
  std::vector<BufferLife> buffers;
  for (int layer = 0; layer < layers; ++layer) {
    const int stage = layer / (blocks_per_stage * 3);
    const int64_t wide = layer % 3 == 2 ? 4 : 1;
    const int64_t bytes = (wide << 20) >> stage;
    const int backward = 2 * layers - 1 - layer;
    buffers.push_back({bytes, layer, backward});
    buffers.push_back({bytes, backward - (layer % 3 == 2 ? 1 : 0), backward + 3});
  }
  return buffers;
}

TEST(MemoryPlan, StaysNearThePeakOfTrainingSteps) {
  for (const int blocks_per_stage : {2, 4, 12}) {
    const std::vector<BufferLife> buffers = training_chain(blocks_per_stage);
    const MemoryPlan plan = plan_memory(buffers);
    expect_valid(buffers, plan, 1024);
    EXPECT_LE(static_cast<double>(plan.total_bytes),
              1.3 * static_cast<double>(peak_bytes(buffers)));
  }
}

TEST(MemoryPlan, ReusesWhatIsFree) {
  EXPECT_EQ(plan_memory({{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 4}}, 1000).total_bytes, 1000);
  const MemoryPlan touching = plan_memory({{1000, 0, 1}, {1000, 1, 2}}, 1000);
  EXPECT_EQ(touching.total_bytes, 2000);  // both in use in operation 1
}

TEST(MemoryPlan, TakesNothingForNothing) {
  EXPECT_EQ(plan_memory({}).total_bytes, 0);
  EXPECT_EQ(plan_memory({{0, 0, 5}}).total_bytes, 0);
}

}  // namespace
}  // namespace nearmetal
