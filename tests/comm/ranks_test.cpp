// Tests of what ranks do together, run by each of several processes that mpirun starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>

#include "base/errors.h"
#include "bench/run/together.h"
#include "comm/shared_memory.h"
#include "tests/comm/job.h"

namespace nearmetal {
namespace {

TEST(Ranks, GatherBroadcastAndMaximum) {
  const std::string mine(world->rank(), 'x');
  const std::vector<std::string> all = world->all_gather(mine);
  ASSERT_EQ(all.size(), static_cast<size_t>(world->size()));
  for (int rank = 0; rank < world->size(); ++rank) EXPECT_EQ(all[rank].size(), rank);
  EXPECT_EQ(world->broadcast("of rank " + std::to_string(world->rank())), "of rank 0");
  std::vector<int64_t> values{world->rank(), -world->rank(), 5};
  world->maximum(values);
  EXPECT_THAT(values, testing::ElementsAre(world->size() - 1, 0, 5));
  EXPECT_EQ(world->local_size(), world->size());
  EXPECT_EQ(world->local_rank(), world->rank());
}

TEST(Ranks, WhatOneWritesAllSee) {
  const int64_t page = 4096;
  const SharedMemory memory(*world, page * world->size());
  EXPECT_EQ(memory.bytes(), page * world->size());
  std::byte* mine = memory.data() + page * world->rank();
  EXPECT_EQ(mine[page - 1], std::byte{0});
  mine[page - 1] = static_cast<std::byte>(1 + world->rank());
  world->all_gather("written");
  for (int rank = 0; rank < world->size(); ++rank) {
    EXPECT_EQ(memory.data()[page * (rank + 1) - 1], static_cast<std::byte>(1 + rank));
  }
}

TEST(Ranks, TheFirstGathersTextsOfAnySizeInTheirOrder) {
  const auto text_of = [](int rank) {  // rank 0's is empty, that of rank 1 has two pieces
    return std::string(rank == 1 ? 20'000'000 : rank * 1000, static_cast<char>('0' + rank));
  };
  const std::vector<std::string> texts = world->gather(text_of(world->rank()));
  ASSERT_EQ(texts.size(), world->rank() == 0 ? world->size() : 0);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_TRUE(texts[i] == text_of(static_cast<int>(i))) << "of rank " << i;
  }
}

TEST(Ranks, InStepAllGetEachAnswerAtTheSameStep) {
  const auto consensus = make_consensus(*world, true);
  const auto is_last = [](int step) { return step >= world->rank(); };
  for (int step = 0; step < world->size(); ++step) {
    const StepVote agreed = consensus->agree({.ready = is_last(step), .stop = false});
    EXPECT_EQ(agreed.ready, step == world->size() - 1) << "once the last rank is ready";
    EXPECT_FALSE(agreed.stop);
  }
  EXPECT_TRUE(consensus->agree({.ready = false, .stop = world->rank() == 1}).stop);
  EXPECT_EQ(consensus->agree({.window_steps = 10 + world->rank()}).window_steps, 9 + world->size());
  EXPECT_EQ(consensus->agree_steps(10 + world->rank()), 9 + world->size());
}

// Takes steps until all ranks are ready; a rank that is goes on.
int steps_until_agreed(Consensus& consensus, int ready_from, bool stops, StepVote& agreed) {
  for (int step = 0;; ++step) {
    const bool ready = step >= ready_from;
    agreed = consensus.agree(
        {.ready = ready && !stops, .stop = ready && stops, .window_steps = world->rank()});
    if (agreed.ready || agreed.stop) return step;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Ranks, AtTheirOwnPaceNoneWaitsAndAllGoOn) {
  const auto consensus = make_consensus(*world, false);
  StepVote agreed;
  EXPECT_GE(steps_until_agreed(*consensus, 20 * world->rank(), false, agreed), 20 * world->rank());
  EXPECT_TRUE(agreed.ready);
  EXPECT_EQ(agreed.window_steps, world->rank());
  const bool stops = world->rank() == 1;
  steps_until_agreed(*consensus, stops ? 5 : std::numeric_limits<int>::max(), stops, agreed);
  EXPECT_TRUE(agreed.stop) << "one rank wants to, and no other is ready";
  EXPECT_EQ(consensus->agree_steps(world->rank()), world->rank());
}

TEST(Ranks, AnExchangeTakesAsLongAsOnTheSlowestRank) {
  for (const Probe& probe : world->probes()) {
    if (probe.bytes > 2 * (64 << 10)) continue;  // enough to tell
    const double seconds = probe.start()(3);
    EXPECT_GT(seconds, 0);
    EXPECT_EQ(world->broadcast(std::to_string(seconds)), std::to_string(seconds)) << probe.name;
  }
}

TEST(Ranks, TheFailureOfOneIsTheFailureOfAll) {
  EXPECT_NO_THROW(together(*world, [] {}));
  try {
    together(*world, [] {
      if (world->rank() == 1) throw std::invalid_argument("no such thing");
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const JobFailure& failure) {
    EXPECT_EQ(failure.exit_code, ExitCode::usage);
    EXPECT_EQ(failure.reported, world->rank() > 0);
    EXPECT_THAT(failure.what(), testing::StartsWith("rank 1 ("));
    EXPECT_THAT(failure.what(), testing::EndsWith("): no such thing"));
  }
  try {
    together(*world, [] { throw std::runtime_error("alike"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const JobFailure& failure) {
    EXPECT_STREQ(failure.what(), "alike") << "no rank stands out";
  }
}

}  // namespace
}  // namespace nearmetal
