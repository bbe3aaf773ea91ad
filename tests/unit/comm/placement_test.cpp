#include "comm/layout/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "tests/support/sample_hosts.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Host vm(const std::string& name, const std::string& node, int64_t gpus) {
  Host vm = host(name, gpus);
  vm.node = node;
  return vm;
}

Layout shaped(const std::string& shape, bool emulate = false) {
  Layout layout;
  layout.name = shape;
  layout.shape = shape;
  layout.emulate = emulate;
  layout.source = "/layouts/0";
  return layout;
}

TEST(Placement, OfAShapeTakesHostsInOrderAndFreeOnesFirst) {
  const std::vector<Host> hosts = {host("a", 4), host("b", 4), host("c", 4)};
  EXPECT_THAT(places(place(shaped("1x1x2"), hosts)), ElementsAre("a:0 a:1"));
  EXPECT_THAT(places(place(shaped("2x1x2"), hosts)), ElementsAre("a:0 a:1 b:0 b:1"));
  EXPECT_THAT(places(place(shaped("2*(1x1x2)"), hosts)), ElementsAre("a:0 a:1", "b:0 b:1"));
  EXPECT_THAT(places(place(shaped("2*(1x1x2)"), {hosts[0]})), ElementsAre("a:0 a:1", "a:2 a:3"));
  Host hidden = hosts[0];
  hidden.visible_gpus = {1, 3};
  EXPECT_THAT(places(place(shaped("2*(1x1x1)"), {hidden})), ElementsAre("a:1", "a:3"));
  EXPECT_THROW(place(shaped("1x1x3"), {hidden}), std::invalid_argument);
  EXPECT_THAT(places(place(shaped("1x1x3+1x1x1+1x1x4"), hosts)),
              ElementsAre("a:0 a:1 a:2", "b:0", "c:0 c:1 c:2 c:3"));
}

TEST(Placement, OfVmsStaysOnTheirNodes) {
  const std::vector<Host> hosts = {vm("vm0", "esx0", 2), vm("vm1", "esx0", 2), vm("vm2", "esx1", 2),
                                   vm("vm3", "esx1", 2)};
  EXPECT_THAT(places(place(shaped("1x2x1"), hosts)), ElementsAre("vm0:0 vm1:0"));
  EXPECT_THAT(places(place(shaped("2x1x2"), hosts)), ElementsAre("vm0:0 vm0:1 vm2:0 vm2:1"));
  EXPECT_THAT(places(place(shaped("2*(1x1x1)"), hosts)), ElementsAre("vm0:0", "vm2:0"));
  const std::vector<Host> one_node = {hosts[0], hosts[1]};
  EXPECT_THAT(places(place(shaped("2*(1x1x1)"), one_node)), ElementsAre("vm0:0", "vm1:0"));
  EXPECT_EQ(place(shaped("1x2x1"), hosts).kind, Kind::measured);
}

TEST(Placement, EmulatesVmsByPartsOfAHost) {
  Host four = host("a", 4);
  four.numa = {{"0-3", {0, 1}}, {"4-7", {2, 3}}};
  const Placement placement = place(shaped("1x2x2", true), {four});
  EXPECT_EQ(placement.kind, Kind::emulated);
  ASSERT_EQ(placement.jobs.size(), 1u);
  const auto& ranks = placement.jobs[0].ranks;
  EXPECT_EQ(places(placement.jobs[0]), "a:0 a:1 a:2 a:3");
  EXPECT_THAT(ranks, ElementsAre(testing::Field(&PlacedRank::cpus, "0-3"),
                                 testing::Field(&PlacedRank::cpus, "0-3"),
                                 testing::Field(&PlacedRank::cpus, "4-7"),
                                 testing::Field(&PlacedRank::cpus, "4-7")));
  EXPECT_EQ(ranks[2].vm, 1);
  EXPECT_EQ(ranks[3].gpu, 3);
  EXPECT_EQ(ranks[3].visible_gpu, 1);
  EXPECT_EQ(ranks[3].variables.at("CUDA_VISIBLE_DEVICES"), "2,3");
  EXPECT_EQ(ranks[0].variables.at("NCCL_HOSTID"), ranks[1].variables.at("NCCL_HOSTID"));
  EXPECT_NE(ranks[1].variables.at("NCCL_HOSTID"), ranks[2].variables.at("NCCL_HOSTID"));
  EXPECT_EQ(ranks[0].variables.at("NCCL_NET"), "Socket");
  EXPECT_EQ(ranks[0].variables.at("NCCL_SOCKET_IFNAME"), "=lo");
  // Over several hosts, sockets take the network.
  const Placement two = place(shaped("2x2x1", true), {host("a", 2), host("b", 2)});
  EXPECT_EQ(places(two.jobs[0]), "a:0 a:1 b:0 b:1");
  EXPECT_FALSE(two.jobs[0].ranks[0].variables.contains("NCCL_SOCKET_IFNAME"));
  // Each VM has its CPUs, whichever jobs there are.
  const Placement jobs = place(shaped("4*(1x1x1)", true), {four});
  EXPECT_EQ(jobs.jobs[3].ranks[0].cpus, "6-7");
  EXPECT_EQ(jobs.jobs[3].ranks[0].vm, 3);
}

TEST(Placement, MeasuredRanksKeepAllOfTheirHost) {
  Host two = host("a", 2);
  two.numa = {{"0-3", {0}}, {"4-7", {1}}};
  const Placement placement = place(shaped("1x1x2"), {two});
  for (const PlacedRank& rank : placement.jobs[0].ranks) {
    EXPECT_EQ(rank.cpus, "");  // each rank binds itself
    EXPECT_FALSE(rank.vm);
    EXPECT_THAT(rank.variables, ElementsAre(testing::Pair("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
                                            testing::Pair("CUDA_VISIBLE_DEVICES", "0,1")));
  }
  Host limited = host("a", 2);
  limited.cpus = "2-5";
  EXPECT_EQ(place(shaped("1x1x2"), {limited}).jobs[0].ranks[1].cpus, "2-5");
}

TEST(Placement, JobsAtOnceHaveRasPortsOfTheirOwn) {
  const Placement placement = place(shaped("2*(1x1x1)"), {host("a", 2)});
  EXPECT_NE(placement.jobs[0].ranks[0].variables.at("NCCL_RAS_ADDR"),
            placement.jobs[1].ranks[0].variables.at("NCCL_RAS_ADDR"));
  EXPECT_EQ(placement.jobs[1].ranks[0].variables.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(placement.jobs[1].ranks[0].visible_gpu, 0);
}

TEST(Placement, WithoutGpusSharesTheCpus) {
  const Placement placement = place(shaped("1x1x2+1x1x1"), {cpu_host("a", "0-6")});
  EXPECT_THAT(places(placement), ElementsAre("a a", "a"));
  EXPECT_EQ(placement.jobs[0].ranks[0].cpus, "0-2");
  EXPECT_EQ(placement.jobs[0].ranks[1].cpus, "3-4");
  EXPECT_EQ(placement.jobs[1].ranks[0].cpus, "5-6");
  EXPECT_FALSE(placement.on_gpus());
  EXPECT_FALSE(placement.jobs[0].ranks[0].variables.contains("CUDA_VISIBLE_DEVICES"));
  // Where the CPUs are not known, there may be more ranks than CPUs.
  EXPECT_EQ(place(shaped("1x1x64"), {host("a", 0)}).jobs[0].ranks[63].cpus, "");
  // Where some hosts have GPUs, a shape takes those.
  EXPECT_THAT(places(place(shaped("1x1x1"), {host("login", 0), host("b", 1)})), ElementsAre("b:0"));
}

TEST(Placement, OfListedJobsIsAsListed) {
  const Layout layout = listed({Job{{{"b", {3, 1}, 0}, {"a", {0}, 0}}}, Job{{{"a", {1}, 0}}}});
  const Placement placement = place(layout, {host("a", 2), host("b", 4)});
  EXPECT_THAT(places(placement), ElementsAre("b:3 b:1 a:0", "a:1"));
  const auto& ranks = placement.jobs[0].ranks;
  EXPECT_EQ(ranks[0].variables.at("CUDA_VISIBLE_DEVICES"), "3,1");
  EXPECT_EQ(ranks[1].visible_gpu, 1);
  EXPECT_EQ(ranks[2].rank, 2);
}

TEST(Placement, AddsTheUsersVariables) {
  const Placement placement = place(shaped("1x1x1"), {host("a", 1)}, {{"NCCL_DEBUG", "INFO"}});
  EXPECT_EQ(placement.jobs[0].ranks[0].variables.at("NCCL_DEBUG"), "INFO");
  EXPECT_THROW(place(shaped("1x1x1"), {host("a", 1)}, {{"CUDA_VISIBLE_DEVICES", "7"}}),
               std::invalid_argument);
}

TEST(Placement, RefusesWhatIsNotThereOrTaken) {
  const std::vector<Host> hosts = {host("a", 2), host("b", 2)};
  const auto on = [](const std::string& name, std::vector<int64_t> gpus) {
    return Instance{name, std::move(gpus), 0};
  };
  const auto place_of = [](int job, int instance) {
    return "/layouts/0/jobs/" + std::to_string(job) + "/instances/" + std::to_string(instance) +
           ": ";
  };
  EXPECT_EQ(refusal_of_hosts(listed({Job{{on("c", {0})}}}), hosts),
            place_of(0, 0) + "there is no host 'c'");
  EXPECT_EQ(refusal_of_hosts(listed({Job{{on("a", {0}), on("b", {2})}}}), hosts),
            place_of(0, 1) + "'b' has 2 GPUs, from 0: there is no GPU 2");
  EXPECT_EQ(refusal_of_hosts(listed({Job{{on("a", {0})}}, Job{{on("a", {0})}}}), hosts),
            place_of(1, 0) + "GPU 0 of 'a' is taken already");
  EXPECT_THAT(refusal_of_hosts(listed({Job{{on("a", {0, 0})}}}), hosts),
              HasSubstr("is taken already"));
  EXPECT_THAT(refusal_of_hosts(listed({Job{{on("a", {0}), on("a", {1})}}}), hosts),
              StartsWith(place_of(0, 1) + "the job is on 'a' already"));
  EXPECT_EQ(refusal_of_hosts(listed({Job{{on("a", {0}), on("a", {1})}}}, true), hosts), "");
  EXPECT_THAT(refusal_of_hosts(listed({Job{{{"a", {}, 2}}}}), hosts), HasSubstr("name those"));
  EXPECT_THAT(
      refusal_of_hosts(listed({Job{{on("a", {0}), {"c", {}, 1}}}}), {hosts[0], host("c", 0)}),
      HasSubstr("some ranks have GPUs and others have none"));
  EXPECT_EQ(refusal_of_hosts(listed({Job{{{"c", {}, 3}}}}), {cpu_host("c", "0-1")}),
            "/layouts/0: 'c' has 2 CPUs for 3 ranks");
  EXPECT_THAT(refusal_of_hosts(listed({Job{{{"c", {}, 65536}, {"d", {}, 1}}}}),
                               {host("c", 0), host("d", 0)}),
              HasSubstr("more than 65536 ranks"));
  EXPECT_EQ(refusal_of_hosts(listed({Job{{{"c", {}, 65535}, {"d", {}, 1}}}}),
                             {host("c", 0), host("d", 0)}),
            "");
  Layout expecting = shaped("1x1x2");
  expecting.expect.world_size = 4;
  EXPECT_EQ(refusal_of_hosts(expecting, hosts),
            "/layouts/0: it has 2 ranks, and a world_size of 4 is expected");
}

TEST(Placement, KeepsThePartsOfAHostTogetherAsMpirunDoes) {
  const std::vector<Host> hosts = {host("a", 2), host("b", 1)};
  const Instance first{"a", {0}, 0}, second{"a", {1}, 0}, other{"b", {0}, 0};
  Layout layout = listed({Job{{first, other, second}}});
  EXPECT_THAT(refusal_of_hosts(layout, hosts), HasSubstr("/instances/2: the job is on 'a' already; "
                                                         "with \"emulate\": true"));
  layout.emulate = true;
  EXPECT_THAT(refusal_of_hosts(layout, hosts),
              HasSubstr("/instances/2: the job is on 'a' already; name its parts one after the"));
  layout.jobs = {Job{{other, first, second}}};
  EXPECT_EQ(place(layout, hosts).jobs[0].ranks[2].visible_gpu, 0);
}

TEST(Placement, SaysWhatAShapeLacks) {
  EXPECT_EQ(
      refusal_of_hosts(shaped("2x1x4"), {host("a", 4), host("b", 2)}),
      "/layouts/0: job 1 of 2x1x4 needs 2 nodes with 1 host of 4 free GPUs (or, without GPUs, "
      "as many CPUs), and there is 1; --hosts NAME:GPUS,... names other hosts");
  EXPECT_THAT(refusal_of_hosts(shaped("3*(1x1x1)"), {host("a", 2)}),
              StartsWith("/layouts/0: job 3 of"));
  EXPECT_THAT(refusal_of_hosts(shaped("1x2x1"), {host("a", 4)}), HasSubstr("\"emulate\": true"));
  EXPECT_THAT(refusal_of_hosts(shaped("1x2x3", true), {host("a", 4)}), HasSubstr("6 free GPUs"));
  EXPECT_THAT(refusal_of_hosts(shaped("1x1x3"), {cpu_host("a", "0-1")}), HasSubstr("3 free GPUs"));
  EXPECT_THAT(refusal_of_hosts(shaped("1x2x2", true), {vm("a", "n", 4), vm("b", "n", 4)}),
              HasSubstr("and there are 0"));
  Host narrow = host("a", 4);
  narrow.numa = {{"0-1", {0, 1, 2, 3}}};
  EXPECT_THAT(refusal_of_hosts(shaped("4*(1x1x1)", true), {narrow}), HasSubstr("too few CPUs"));
}

TEST(LaunchOrder, TakesEachLayoutOnceInEveryRepeat) {
  EXPECT_THAT(launch_order(3, 2, false, 1), ElementsAre(Launch{0, 1}, Launch{1, 1}, Launch{2, 1},
                                                        Launch{0, 2}, Launch{1, 2}, Launch{2, 2}));
  EXPECT_THAT(launch_order(1, 1, true, 9), ElementsAre(Launch{0, 1}));
}

TEST(LaunchOrder, OfTwoLayoutsIsByTurns) {
  std::set<std::string> orders;
  for (int64_t seed = 0; seed < 8; ++seed) {
    std::string order;
    for (const Launch& launch : launch_order(2, 4, true, seed)) {
      order += std::to_string(launch.layout);
    }
    orders.insert(order);
  }
  EXPECT_THAT(orders, ElementsAre("01100110", "10011001"));
}

// As the seed is part of a plan, another version must not give another order.
TEST(LaunchOrder, OfASeedStaysTheSame) {
  std::string order;
  for (const Launch& launch : launch_order(4, 3, true, 1)) order += std::to_string(launch.layout);
  EXPECT_EQ(order, "123002132130");
  EXPECT_NE(launch_order(4, 3, true, 1), launch_order(4, 3, true, 2));
}

}  // namespace
}  // namespace nearmetal
