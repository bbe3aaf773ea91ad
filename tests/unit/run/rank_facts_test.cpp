#include "bench/run/rank_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nearmetal {
namespace {

using testing::HasSubstr;

std::string& host_name(Report& rank) { return rank.environments[0].host_name; }
Maybe<std::string>& gpu_uuid(Report& rank) { return rank.environments[0].gpus[0].uuid; }
std::string& cpus(Report& rank) { return rank.arms[0].runs[0].ranks[0].binding->cpus; }

Report report_of(const std::string& number) {
  Report rank;
  Environment& environment = rank.environments.emplace_back();
  environment.host_name = "vm" + number;
  environment.boot_id = "boot " + number;
  environment.libraries = {{"cuDNN", "9.14"}};
  environment.gpus.resize(1);
  gpu_uuid(rank) = "GPU-" + number;
  rank.arms.resize(1);
  rank.arms[0].runs.resize(1);
  rank.arms[0].runs[0].ranks.resize(1);
  rank.arms[0].runs[0].ranks[0].binding.emplace().cpus = "0-3";
  return rank;
}

std::vector<Report> two_ranks() { return {report_of("0"), report_of("1")}; }

TEST(RankFacts, OneJobIsAlike) { EXPECT_EQ(disagreement(two_ranks()), std::nullopt); }

TEST(RankFacts, WhatDiffersIsNamed) {
  auto ranks = two_ranks();
  ranks[1].environments[0].libraries["cuDNN"] = "9.19";
  EXPECT_EQ(disagreement(ranks), "rank 1 (vm1) differs from rank 0 (vm0): cuDNN 9.19 against 9.14");
  ranks = two_ranks();
  ranks[1].environments[0].libraries["NCCL"] = "2.28";
  EXPECT_THAT(*disagreement(ranks), HasSubstr("NCCL 2.28 against none"));
  ranks = two_ranks();
  ranks[1].invocation.config.seed = 2;
  ranks[1].invocation.config.gpu = 3;
  ranks[1].invocation.config.batch = 64;
  ranks[1].tool.git_commit = std::string("ffff");
  EXPECT_THAT(*disagreement(ranks), HasSubstr(": --batch 64 against none, --seed 2 against 1, "
                                              "commit ffff against not known"));
}

TEST(RankFacts, TwoPlannedHostsAreTwoMachines) {
  auto ranks = two_ranks();
  EXPECT_EQ(misplacement(ranks, {"a", "b"}), std::nullopt);
  EXPECT_EQ(misplacement(ranks, {}), std::nullopt) << "nothing was planned";
  EXPECT_THAT(*misplacement(ranks, {"a", "a"}),
              HasSubstr("host 'a' of the plan is several machines: rank 0 (vm0) and rank 1 (vm1)"));
  EXPECT_THAT(*misplacement(ranks, {"a"}), HasSubstr("has 1 rank, and this job 2"));
  host_name(ranks[1]) = "another name";
  ranks[1].environments[0].boot_id = ranks[0].environments[0].boot_id;
  EXPECT_THAT(*misplacement(ranks, {"a", "b"}),
              HasSubstr("hosts 'a' and 'b' of the plan are one machine: rank 0 (vm0) and rank 1"));
  EXPECT_EQ(misplacement(ranks, {"a", "a"}), std::nullopt);
}

TEST(RankFacts, OneGpuHasOneRank) {
  auto ranks = two_ranks();
  gpu_uuid(ranks[1]) = std::string("GPU-0");
  EXPECT_THAT(*disagreement(ranks), HasSubstr("rank 0 (vm0) and rank 1 (vm1) are on the same GPU"));
  gpu_uuid(ranks[0]) = gpu_uuid(ranks[1]) = Unknown{"of no GPU"};
  EXPECT_EQ(disagreement(ranks), std::nullopt);
}

TEST(RankFacts, CpusAreSharedOnOneHostAlone) {
  auto ranks = two_ranks();
  ranks.push_back(ranks[0]);
  EXPECT_EQ(ranks_on_same_cpus(ranks, 0), 2);
  EXPECT_EQ(ranks_on_same_cpus(ranks, 1), 1);
  host_name(ranks[2]) = "localhost";
  EXPECT_EQ(ranks_on_same_cpus(ranks, 0), 2) << "whatever it is called";
  host_name(ranks[1]) = "vm0";
  EXPECT_EQ(ranks_on_same_cpus(ranks, 0), 2) << "a clone has CPUs of its own";
  cpus(ranks[2]) = "4-7";
  EXPECT_EQ(ranks_on_same_cpus(ranks, 0), 1);
}

}  // namespace
}  // namespace nearmetal
