// Gradients that NCCL sums inside hosts and MPI between them, run by each of several processes that
// mpirun starts. The hosts are emulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "bench/run/together.h"
#include "models/networks/registry.h"
#include "models/sixteen_bits.h"
#include "tests/comm/job.h"

namespace nearmetal {
namespace {

// Sums of a thread of its own while this one has other things to settle with the ranks, as in a
// run.
TEST(HostSum, GoesOnBesideWhatElseTheRanksDo) {
  const int parts = world->size() / 2;
  const auto host_sum = world->host_sum(world->rank() % parts);
  const int64_t elements = 10007;
  int wrong = 0;
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) {
      const int number = world->rank() / parts;
      const auto mine = static_cast<float>(number + i % 8);
      const auto sum = static_cast<float>(1 + 2 * (i % 8));
      std::vector<Fp16> half(elements, from_float<Fp16>(mine));
      host_sum->sum({half.data(), elements, Precision::fp16});
      std::vector<float> single(elements, mine);
      host_sum->sum({single.data(), elements, Precision::fp32});
      for (int64_t k = 0; k < elements; ++k) {
        wrong += to_float(half[k]) != sum || single[k] != sum ? 1 : 0;
      }
    }
  });
  for (int64_t i = 0; i < 1000; ++i) {
    std::vector<int64_t> values{i + world->rank()};
    world->maximum(values);
    EXPECT_EQ(values[0], i + world->size() - 1);
  }
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(host_sum->library().empty());
}

TEST(HostsOfRanks, AreThoseThatNcclTellsApart) {
  const auto name = [](int rank) { return "vm" + std::to_string(rank % 2); };
  setenv("NCCL_HOSTID", name(world->rank()).c_str(), 1);
  const std::vector<RankHost> emulated = hosts_of_ranks(*world);
  unsetenv("NCCL_HOSTID");
  ASSERT_EQ(emulated.size(), static_cast<size_t>(world->size()));
  for (int rank = 0; rank < world->size(); ++rank) {
    EXPECT_EQ(emulated[rank], (RankHost{name(rank), ""}));
  }
  const std::vector<RankHost> real = hosts_of_ranks(*world);
  EXPECT_FALSE(real[0].boot_id.empty());
  EXPECT_EQ(real, std::vector<RankHost>(world->size(), real[0])) << "all on this machine";
}

class Hierarchical : public testing::Test {
 protected:
  void SetUp() override {
    if (device != "cuda") GTEST_SKIP() << "for GPUs";
  }

  // This rank's place, with the ranks spread over so many hosts.
  static HostPlace place_on(int hosts) {
    std::vector<RankHost> of_ranks;
    for (int rank = 0; rank < world->size(); ++rank) {
      of_ranks.push_back({"host" + std::to_string(rank * hosts / world->size()), ""});
    }
    return place_of(of_ranks, world->rank());
  }

  static std::unique_ptr<AllReduce> over_hosts(int hosts) {
    const HostPlace place = place_on(hosts);
    return join_all_reduce(collective_for(AllReduceKind::hierarchical, true),
                           {.world = *world,
                            .place = place,
                            .gpu = world->local_rank(),
                            .group = new_nccl_group(*world, load_nccl(), place.first_rank),
                            .failed = [](const std::string& why) {
                              std::fprintf(stderr, "between hosts: %s\n", why.c_str());
                              std::abort();
                            }});
  }

  const Graph graph_ = build_network("resnet18", {32, 10});
};

constexpr LossScale of_fp16{.initial = 16};

TEST_F(Hierarchical, SumsOfKnownValuesAreExact) {
  for (int hosts = world->size(); hosts > 0; hosts /= 2) {
    const int parts = place_on(hosts).local_ranks;
    const auto all_reduce = over_hosts(hosts);
    EXPECT_THAT(all_reduce->library(), testing::MatchesRegex("nccl [0-9.]+ \\+ .+"));
    EXPECT_EQ(all_reduce->ranks(), world->size());
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      const auto program =
          program_on(graph_, world->rank(), {all_reduce.get(), 1 << 20, {}, precision, of_fp16});
      bool uneven = false;
      for (const BucketTest& test : all_reduce->test(2)) {
        EXPECT_TRUE(test.exact) << test.bytes << " bytes over " << hosts << " hosts";
        EXPECT_GT(test.seconds, 0);
        const int64_t elements = test.bytes / element_bytes(test.type);
        uneven = uneven || part_of(elements, parts, 0).elements * parts != elements;
      }
      EXPECT_EQ(uneven, parts > 2) << "of even buckets, as all are, halves are even";
    }
  }
}

TEST_F(Hierarchical, StepsAreThoseOfNcclButForRounding) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const TestedStep plain{nullptr, 1 << 20, {}, precision, of_fp16};
    const auto gradients_by = [&](AllReduce& all_reduce) {
      TestedStep step = plain;
      step.all_reduce = &all_reduce;
      return gradients_of_one_step(*program_on(graph_, world->rank(), step));
    };
    const std::vector<float> by_nccl = gradients_by(*all_reduce_on_device());
    const std::vector<double> wanted(by_nccl.begin(), by_nccl.end());
    for (int hosts = world->size(); hosts > 0; hosts /= 2) {
      EXPECT_LT(relative_difference(gradients_by(*over_hosts(hosts)), wanted),
                precision == Precision::fp32 ? 1e-5 : 0x1p-9)
          << to_string(precision) << " over " << hosts << " hosts";
    }
  }
}

TEST_F(Hierarchical, GradientsTravelInTheTypeThatIsAskedFor) {
  const std::vector<double>& wanted = mean_of_gradients(graph_);
  const auto all_reduce = over_hosts(2);
  for (const Precision type : {Precision::bf16, Precision::fp16}) {
    const auto program = program_on(graph_, world->rank(),
                                    {all_reduce.get(), 1 << 20, type, Precision::fp32, of_fp16});
    const double difference = relative_difference(gradients_of_one_step(*program), wanted);
    EXPECT_GE(difference, 0x1p-15) << to_string(type);
    EXPECT_LE(difference, type == Precision::bf16 ? 0x1p-7 : 0x1p-10) << to_string(type);
    for (const BucketTest& test : all_reduce->test(1)) EXPECT_TRUE(test.exact);
  }
}

TEST_F(Hierarchical, ReplicasStayTheSameBitByBit) {
  const auto all_reduce = over_hosts(2);
  const auto program =
      program_on(graph_, world->rank(), {all_reduce.get(), 1 << 20, {}, Precision::fp16, of_fp16});
  for (int step = 0; step < 5; ++step) {
    program->enqueue_step();
    const StepRecord record = program->wait_step();
    EXPECT_TRUE(std::isfinite(record.gradient_norm));
    EXPECT_GT(record.exposed_communication_seconds, 0);
  }
  const std::vector<float> parameters = program->parameters();
  const std::string bytes(reinterpret_cast<const char*>(parameters.data()),
                          parameters.size() * sizeof(float));
  for (const std::string& other : world->all_gather(bytes)) EXPECT_TRUE(other == bytes);
}

}  // namespace
}  // namespace nearmetal
