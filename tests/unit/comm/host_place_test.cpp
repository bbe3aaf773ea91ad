#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "comm/join_ranks.h"

namespace nearmetal {
namespace {

using testing::StrEq;
using testing::ThrowsMessage;

const Collective& row_of(AllReduceKind kind) { return collective_for(kind, true); }

TEST(Collectives, AreNamedByTheirRowsAndChosenByTheDevice) {
  EXPECT_STREQ(to_string(AllReduceKind::automatic), "auto");
  EXPECT_STREQ(to_string(AllReduceKind::mpi), "mpi");
  EXPECT_STREQ(to_string(AllReduceKind::hierarchical), "hierarchical");
  EXPECT_EQ(collective_for(AllReduceKind::automatic, true).kind, AllReduceKind::nccl);
  EXPECT_EQ(collective_for(AllReduceKind::automatic, false).kind, AllReduceKind::mpi);
}

TEST(HostPlace, RanksOfAHostInTheirOrder) {
  const std::vector<RankHost> hosts = {{"b", ""}, {"a", ""}, {"b", ""}, {"a", ""}};
  for (int rank = 0; rank < 4; ++rank) {
    const HostPlace place = place_of(hosts, rank);
    EXPECT_EQ(place.hosts, 2);
    EXPECT_EQ(place.local_ranks, 2);
    EXPECT_EQ(place.local_rank, rank / 2);
    EXPECT_EQ(place.first_rank, rank % 2);
  }
}

TEST(HostPlace, OneRankOnEachHostOrAllOnOne) {
  const std::vector<RankHost> apart = {{"a", ""}, {"b", ""}, {"c", ""}};
  EXPECT_EQ(place_of(apart, 2).hosts, 3);
  EXPECT_EQ(place_of(apart, 2).local_rank, 0);
  EXPECT_EQ(place_of(apart, 2).first_rank, 2);
  const std::vector<RankHost> together(3, {"a", ""});
  EXPECT_EQ(place_of(together, 2).hosts, 1);
  EXPECT_EQ(place_of(together, 2).local_rank, 2);
}

TEST(HostPlace, CopiesOfAVmHaveOneNameButStartedApart) {
  const std::vector<RankHost> hosts = {{"vm", "1"}, {"vm", "2"}};
  EXPECT_EQ(place_of(hosts, 1).hosts, 2);
}

TEST(HostPlace, UnevenHostsAreNamed) {
  const std::vector<RankHost> hosts = {{"a", ""}, {"a", ""}, {"b", ""}};
  EXPECT_THAT([&] { require_hosts_for(row_of(AllReduceKind::hierarchical), hosts); },
              ThrowsMessage<std::invalid_argument>(
                  StrEq("--all-reduce hierarchical needs as many ranks on each host: 2 on a, "
                        "1 on b")));
  EXPECT_NO_THROW(require_hosts_for(row_of(AllReduceKind::nccl), hosts));
}

TEST(HostPlace, SeveralHostsAreNamedWhereOneIsNeeded) {
  const std::vector<RankHost> hosts = {{"a", ""}, {"b", ""}, {"a", ""}};
  const Collective& row = row_of(AllReduceKind::host);
  EXPECT_THAT([&] { require_hosts_for(row, hosts); },
              ThrowsMessage<std::invalid_argument>(
                  StrEq("--all-reduce host is for ranks of one host: 2 on a, 1 on b")));
  EXPECT_NO_THROW(require_hosts_for(row, std::vector<RankHost>(3, {"a", ""})));
}

TEST(HostPlace, ThisProcess) {
  unsetenv("NCCL_HOSTID");
  EXPECT_FALSE(rank_host().name.empty());
  EXPECT_EQ(rank_host().boot_id.size(), 36U) << "a UUID";
  setenv("NCCL_HOSTID", "host-vm1", 1);
  EXPECT_EQ(rank_host(), (RankHost{"host-vm1", ""}));
  unsetenv("NCCL_HOSTID");
}

TEST(Parts, CoverAllInOrderAlignedAndNearlyEven) {
  for (const int64_t elements : {0, 1, 63, 64, 65, 1000, 9664, 11173962, 25557032}) {
    for (const int parts : {1, 2, 3, 4, 7, 8, 16}) {
      int64_t end = 0, fewest = elements, most = 0;
      for (int i = 0; i < parts; ++i) {
        const Part part = part_of(elements, parts, i);
        EXPECT_EQ(part.begin, end);
        EXPECT_GE(part.elements, 0);
        EXPECT_TRUE(part.elements == 0 || part.begin % 64 == 0);
        end = part.begin + part.elements;
        fewest = std::min(fewest, part.elements);
        most = std::max(most, part.elements);
      }
      EXPECT_EQ(end, elements);
      EXPECT_LT(most - fewest, 128) << elements << " in " << parts;
    }
  }
}

TEST(Parts, Uneven) {
  EXPECT_EQ(part_of(9664, 2, 0), (Part{0, 4800}));
  EXPECT_EQ(part_of(9664, 2, 1), (Part{4800, 4864}));
  EXPECT_EQ(part_of(100, 4, 0), (Part{0, 0}));
  EXPECT_EQ(part_of(100, 4, 1), (Part{0, 64}));
  EXPECT_EQ(part_of(100, 4, 2), (Part{64, 0}));
  EXPECT_EQ(part_of(100, 4, 3), (Part{64, 36}));
}

}  // namespace
}  // namespace nearmetal
