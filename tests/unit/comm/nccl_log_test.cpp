#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "comm/nccl.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Constructed from the formats in the sources of NCCL 2.28 (src/enqueue.cc, src/init.cc,
// src/transport/*.cc).
constexpr const char* constructed_log =
    R"(node1:412:412 [0] NCCL INFO NCCL version 2.28.3+cuda13.0
node1:412:430 [0] NCCL INFO Channel 00/24 : 0 1 3 2
node1:412:430 [0] NCCL INFO Channel 01/24 : 0 1 3 2
node1:412:430 [0] NCCL INFO Channel 02/24 : 0 2 3 1
node1:412:430 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1
node1:412:430 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node1:412:430 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
node1:412:430 [0] NCCL INFO Channel 00/0 : 2[2] -> 0[0] [receive] via NET/Socket/0
node1:412:430 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer
node1:412:412 [0] NCCL INFO AllReduce: 33554432 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
node1:412:412 [0] NCCL INFO AllReduce: 33554432 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
node1:412:412 [0] NCCL INFO Broadcast: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
node1:412:412 [0] NCCL INFO AllReduce: 215000 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={4..7}
)";

TEST(NcclLog, ConstructedLogTellsSumsTransportsAndRings) {
  const Maybe<NcclChoices> choices = parse_nccl_log(constructed_log);
  ASSERT_TRUE(choices);
  EXPECT_THAT(choices->sums, ElementsAre(SumChoice{33554432, "ring", "simple", 24},
                                         SumChoice{215000, "tree", "ll128", 4}));
  EXPECT_THAT(choices->transports, ElementsAre("P2P/CUMEM", "NET/Socket/0"));
  EXPECT_THAT(choices->rings, ElementsAre("0 1 3 2", "0 2 3 1"));
}

TEST(NcclLog, NamesOfNetworksMayHaveASpace) {
  const Maybe<NcclChoices> choices = parse_nccl_log(
      "node1:412:430 [0] NCCL INFO Channel 00/0 : 9[1] -> 0[0] [send] via NET/AWS "
      "Libfabric/1/GDRDMA\n" +
      std::string(constructed_log));
  EXPECT_EQ(choices->transports.at(0), "NET/AWS Libfabric/1/GDRDMA");
}

TEST(NcclLog, PartsOfSumsInsideAHostAreToldWhereAskedFor) {
  const std::string log =
      constructed_log + std::string(
                            "node1:412:412 [0] NCCL INFO Reduce: 4096 Bytes -> Algo RING proto "
                            "SIMPLE channel{Lo..Hi}={0..3}\n");
  const Maybe<NcclChoices> parts = parse_nccl_log(log, 0, "Reduce|Broadcast");
  ASSERT_TRUE(parts);
  EXPECT_THAT(parts->sums, ElementsAre(SumChoice{8, "ring", "ll", 1, "broadcast"},
                                       SumChoice{4096, "ring", "simple", 4, "reduce"}));
  EXPECT_EQ(parse_nccl_log(log)->sums, parse_nccl_log(constructed_log)->sums);
}

// The log of rank 0 of two H200s with NVLink; lines on other matters are left out.
TEST(NcclLog, RecordedLogOfTwoH200s) {
  const Maybe<NcclChoices> choices = parse_nccl_log(
      content_of(std::filesystem::path(NM_TESTS_FOLDER) / "data/nccl/recorded_two_h200.log"));
  ASSERT_TRUE(choices);
  EXPECT_THAT(choices->sums, ElementsAre(SumChoice{33980416, "ring", "simple", 24},
                                         SumChoice{13893632, "ring", "simple", 24},
                                         SumChoice{3138048, "ring", "simple", 19},
                                         SumChoice{220160, "ring", "ll", 6}));
  EXPECT_THAT(choices->transports, ElementsAre("P2P/CUMEM"));
  EXPECT_THAT(choices->rings, ElementsAre("0 1"));
}

TEST(NcclLog, SumsOfEarlierStepsAreLeftOut) {
  const std::string log = constructed_log;
  const Maybe<NcclChoices> choices = parse_nccl_log(log, log.rfind("node1:"));
  ASSERT_TRUE(choices);
  EXPECT_THAT(choices->sums, ElementsAre(SumChoice{215000, "tree", "ll128", 4}));
  EXPECT_EQ(choices->transports.size(), 2) << "as long as the group lives";
  EXPECT_FALSE(parse_nccl_log(log, log.size()));
}

TEST(NcclLog, WithoutSumsNothingIsKnown) {
  const Maybe<NcclChoices> choices = parse_nccl_log("node1:1:1 [0] NCCL INFO Bootstrap timings\n");
  EXPECT_FALSE(choices);
  EXPECT_EQ(choices.reason, "NCCL's log names no sum");
}

TEST(NcclLog, TheAlgorithmThatWasAskedForIsTheOnlyOne) {
  NcclChoices choices;
  choices.sums = {{100, "ring", "ll", 1}, {200, "ring", "simple", 24}};
  EXPECT_NO_THROW(require_algorithm(choices, NcclAlgorithm::ring));
  EXPECT_NO_THROW(require_algorithm(choices, NcclAlgorithm::automatic));
  choices.sums.push_back({300, "tree", "simple", 24});
  EXPECT_NO_THROW(require_algorithm(choices, NcclAlgorithm::automatic));
  EXPECT_THAT([&] { require_algorithm(choices, NcclAlgorithm::ring); },
              ThrowsMessage<std::runtime_error>(
                  "NCCL takes tree for 300 bytes in spite of --nccl-algorithm ring"));
}

TEST(NcclLog, WhatCannotBeCheckedIsRefused) {
  EXPECT_NO_THROW(require_algorithm(Unknown{"NCCL_DEBUG is set"}, NcclAlgorithm::automatic));
  EXPECT_THAT([] { require_algorithm(Unknown{"NCCL_DEBUG is set"}, NcclAlgorithm::tree); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot be checked: NCCL_DEBUG is set")));
}

}  // namespace
}  // namespace nearmetal
