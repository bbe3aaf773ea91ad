#include "bench/run/rank_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nearmetal {
namespace {

using testing::HasSubstr;

std::vector<RankFacts> two_ranks() {
  const RankFacts facts{.host_name = "vm0",
                        .operating_system = "boot 1",
                        .cpus = "0-3",
                        .gpu_uuid = "GPU-0",
                        .common = {{"cuDNN", "9.14"}, {"settings", "abc"}}};
  std::vector<RankFacts> ranks(2, facts);
  ranks[1].host_name = "vm1";
  ranks[1].operating_system = "boot 2";
  ranks[1].gpu_uuid = "GPU-1";
  return ranks;
}

TEST(RankFacts, TravelUnchanged) {
  RankFacts facts = two_ranks()[0];
  facts.gpu_uuid = "";
  facts.common["empty"] = "";
  const RankFacts read = rank_facts_from(to_bytes(facts));
  EXPECT_EQ(read.host_name, facts.host_name);
  EXPECT_EQ(read.operating_system, facts.operating_system);
  EXPECT_EQ(read.cpus, facts.cpus);
  EXPECT_EQ(read.gpu_uuid, facts.gpu_uuid);
  EXPECT_EQ(read.common, facts.common);
}

TEST(RankFacts, OneJobIsAlike) { EXPECT_EQ(disagreement(two_ranks()), ""); }

TEST(RankFacts, WhatDiffersIsNamed) {
  auto ranks = two_ranks();
  ranks[1].common["cuDNN"] = "9.19";
  EXPECT_EQ(disagreement(ranks),
            "rank 1 (vm1) differs from rank 0 (vm0) in cuDNN: 9.19 against 9.14");
  ranks = two_ranks();
  ranks[1].common["NCCL"] = "2.28";
  EXPECT_THAT(disagreement(ranks), HasSubstr("NCCL: 2.28 against none"));
}

TEST(RankFacts, OneGpuHasOneRank) {
  auto ranks = two_ranks();
  ranks[1].gpu_uuid = "GPU-0";
  EXPECT_THAT(disagreement(ranks), HasSubstr("rank 0 (vm0) and rank 1 (vm1) are on the same GPU"));
  ranks[0].gpu_uuid = ranks[1].gpu_uuid = "";  // not known
  EXPECT_EQ(disagreement(ranks), "");
}

TEST(RankFacts, CpusAreSharedOnOneHostAlone) {
  auto ranks = two_ranks();
  ranks.push_back(ranks[0]);
  EXPECT_EQ(ranks_on_same_cpus(ranks, 0), 2);
  EXPECT_EQ(ranks_on_same_cpus(ranks, 1), 1);
  ranks[2].host_name = "localhost";
  EXPECT_EQ(ranks_on_same_cpus(ranks, 0), 2) << "whatever it is called";
  ranks[1].host_name = "vm0";
  EXPECT_EQ(ranks_on_same_cpus(ranks, 0), 2) << "a clone has CPUs of its own";
  ranks[2].cpus = "4-7";
  EXPECT_EQ(ranks_on_same_cpus(ranks, 0), 1);
}

}  // namespace
}  // namespace nearmetal
