// Ranks that sum in shared memory, simulated: each takes its steps in order, whoever is next by
// chance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "comm/join_ranks.h"
#include "comm/shared_memory.h"

namespace nearmetal {
namespace {

using BucketValues = std::vector<int64_t>;

// The memory that the ranks share, and nothing else.
struct SimulatedMemory {
  std::vector<std::vector<BucketValues>> gradients;        // by rank and bucket
  std::vector<BucketValues> sums;                          // by bucket
  std::map<std::tuple<Stage, int, int, int>, bool> flags;  // by stage, first bucket, to, from
};

// A piece of what a rank does; false where it must wait.
using SimulatedStep = std::function<bool()>;

class SimulatedRank : public StagedOperations {
 public:
  SimulatedRank(int rank, int ranks, const std::vector<int64_t>& sizes, SimulatedMemory& memory)
      : rank_(rank), ranks_(ranks), memory_(memory) {
    for (const int64_t size : sizes) {
      buckets_.emplace_back(size);
      rows_.emplace_back(ranks, BucketValues(size));
    }
  }

  void compute(int round) {
    then([this, round] {
      for (BucketValues& bucket : buckets_) {
        std::fill(bucket.begin(), bucket.end(), gradient(rank_, round));
      }
    });
  }

  void expect_sums(int round) {
    then([this, round] {
      int64_t sum = 0;
      for (int rank = 0; rank < ranks_; ++rank) sum += gradient(rank, round);
      for (const BucketValues& bucket : buckets_) {
        for (const int64_t value : bucket) wrong_ += value != sum ? 1 : 0;
      }
    });
  }

  void share_gradients(int bucket) override {
    for (const int rank : others()) {
      copy(buckets_[bucket], memory_.gradients[rank_][bucket], part_of_rank(bucket, rank));
    }
  }
  void fetch_gradients(int bucket) override {
    for (const int rank : others()) {
      copy(memory_.gradients[rank][bucket], rows_[bucket][rank], part_of_rank(bucket, rank_));
    }
  }
  void add(int bucket) override {
    then([this, bucket] {
      const Part part = part_of_rank(bucket, rank_);
      for (int64_t i = part.begin; i < part.begin + part.elements; ++i) {
        for (const int rank : others()) buckets_[bucket][i] += rows_[bucket][rank][i];
      }
    });
  }
  void share_sums(int bucket) override {
    copy(buckets_[bucket], memory_.sums[bucket], part_of_rank(bucket, rank_));
  }
  void fetch_sums(int bucket) override {
    for (const int rank : others()) {
      copy(memory_.sums[bucket], buckets_[bucket], part_of_rank(bucket, rank));
    }
  }
  void signal(Stage stage, int first) override {
    for (const int other : others()) {
      then([this, stage, first, other] {
        bool& flag = memory_.flags[{stage, first, other, rank_}];
        wrong_ += flag ? 1 : 0;  // one told twice would be one lost
        flag = true;
      });
    }
  }
  void await(Stage stage, int first) override {
    for (const int other : others()) {
      steps_.push_back([this, stage, first, other] {
        return memory_.flags[{stage, first, rank_, other}];
      });
      then([this, stage, first, other] { memory_.flags[{stage, first, rank_, other}] = false; });
    }
  }

  bool done() const { return next_ == steps_.size(); }
  bool step() {
    if (done() || !steps_[next_]()) return false;
    ++next_;
    return true;
  }
  int wrong() const { return wrong_; }

 private:
  static int64_t gradient(int rank, int round) { return 1 + 100 * round + 7 * rank; }
  int64_t size(int bucket) const { return static_cast<int64_t>(buckets_[bucket].size()); }
  Part part_of_rank(int bucket, int rank) const { return part_of(size(bucket), ranks_, rank); }
  std::vector<int> others() const {
    std::vector<int> ranks(ranks_);
    std::iota(ranks.begin(), ranks.end(), 0);
    ranks.erase(ranks.begin() + rank_);
    return ranks;
  }

  void then(std::function<void()> what) {
    steps_.push_back([what = std::move(what)] {
      what();
      return true;
    });
  }

  // In pieces, between which others go on.
  void copy(const BucketValues& from, BucketValues& to, Part part) {
    constexpr int64_t piece = 64;
    for (int64_t begin = part.begin; begin < part.begin + part.elements; begin += piece) {
      const int64_t end = std::min(begin + piece, part.begin + part.elements);
      then([&from, &to, begin, end] {
        std::copy(from.begin() + begin, from.begin() + end, to.begin() + begin);
      });
    }
  }

  int rank_, ranks_;
  SimulatedMemory& memory_;
  std::vector<BucketValues> buckets_;
  std::vector<std::vector<BucketValues>> rows_;  // by bucket and rank
  std::vector<SimulatedStep> steps_;
  size_t next_ = 0;
  int wrong_ = 0;
};

struct BucketGroup {
  int first, count;
};

// Returns how many values or flags were wrong; -1 where ranks wait for ever.
int wrong_after(int ranks, const std::vector<int64_t>& sizes,
                const std::vector<BucketGroup>& groups, std::mt19937& random) {
  SimulatedMemory memory;
  memory.gradients.assign(ranks, {});
  for (const int64_t size : sizes) {
    for (auto& rank : memory.gradients) rank.emplace_back(size);
    memory.sums.emplace_back(size);
  }
  std::vector<SimulatedRank> all;
  all.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    all.emplace_back(rank, ranks, sizes, memory);
    for (int round = 0; round < 3; ++round) {
      all.back().compute(round);
      for (const BucketGroup& group : groups) sum_staged(group.first, group.count, all.back());
      all.back().expect_sums(round);
    }
  }
  const auto done = [&] {
    return std::all_of(all.begin(), all.end(),
                       [](const SimulatedRank& rank) { return rank.done(); });
  };
  // Some ranks are far faster than others, in turn.
  int idle = 0;
  while (!done()) {
    SimulatedRank& next = all[random() % ranks];
    bool went = false;
    for (auto steps = random() % 40; steps > 0 && next.step(); --steps) went = true;
    idle = went ? 0 : idle + 1;
    if (idle > 1000 * ranks) return -1;
  }
  int wrong = 0;
  for (const SimulatedRank& rank : all) wrong += rank.wrong();
  return wrong;
}

TEST(StagedSum, IsRightInWhateverOrderTheRanksGetOn) {
  std::mt19937 random(7);
  for (const int ranks : {2, 3, 4}) {
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(wrong_after(ranks, {300}, {{0, 1}}, random), 0) << "one bucket, again and again";
      EXPECT_EQ(wrong_after(ranks, {520, 64, 10}, {{0, 1}, {1, 2}}, random), 0) << "two at once";
    }
  }
}

}  // namespace
}  // namespace nearmetal
