// Gradients that ranks exchange, run by each of several processes that mpirun starts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/graph.h"
#include "models/networks/registry.h"
#include "models/sixteen_bits.h"
#include "tests/comm/job.h"

namespace nearmetal {
namespace {

// A network with buckets of which its gradients fill about ten or forty, and a loss scale with
// which they do not fit into fp16.
struct TestedNetwork {
  const char* name;
  int64_t large_bucket, small_bucket;
  double too_large_scale;
};

const TestedNetwork& tested() {
  static constexpr TestedNetwork on_cpu{"resnet20", 96 << 10, 24 << 10, 0x1p20};
  static constexpr TestedNetwork on_gpu{"resnet18", 4 << 20, 1 << 20, 0x1p14};
  return device == "cuda" ? on_gpu : on_cpu;
}

Graph tested_graph() { return build_network(tested().name, {32, 10}); }

TEST(Exchange, TheAveragedGradientIsTheMeanOfThoseOfTheShards) {
  const Graph graph = tested_graph();
  const std::vector<double>& wanted = mean_of_gradients(graph);
  const auto all_reduce = all_reduce_on_device();
  const auto program = program_on(graph, world->rank(), {all_reduce.get()});
  for (const int64_t bucket_bytes : {int64_t{0}, tested().large_bucket, tested().small_bucket}) {
    restart(*program, graph, *all_reduce, bucket_bytes);
    EXPECT_LT(relative_difference(gradients_of_one_step(*program), wanted),
              device == "cpu" ? 1e-6 : 1e-5)
        << "buckets of " << bucket_bytes;
  }
}

TEST(Exchange, ReplicasStayTheSameBitByBit) {
  const Graph graph = tested_graph();
  const auto bytes = [](const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  };
  for (const Precision type : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const auto all_reduce = all_reduce_on_device();
    TestedStep tested_step{all_reduce.get(), tested().small_bucket, type};
    tested_step.optimizer = type == Precision::bf16 ? Optimizer::adamw : Optimizer::sgd;
    const auto program = program_on(graph, world->rank(), tested_step);
    for (int step = 0; step < 3; ++step) {
      program->enqueue_step();
      EXPECT_TRUE(std::isfinite(program->wait_step().loss));
    }
    const auto parameters = world->all_gather(bytes(program->parameters()));
    const auto momentum = world->all_gather(bytes(program->momentum()));
    const auto second = world->all_gather(bytes(program->second_moments()));
    EXPECT_EQ(second[0].empty(), tested_step.optimizer == Optimizer::sgd);
    for (int rank = 1; rank < world->size(); ++rank) {
      EXPECT_TRUE(parameters[rank] == parameters[0]) << to_string(type);
      EXPECT_TRUE(momentum[rank] == momentum[0]) << to_string(type);
      EXPECT_TRUE(second[rank] == second[0]) << to_string(type);
    }
    EXPECT_NE(bytes(program->parameters()), bytes(initial_parameters(graph, 1)));
  }
}

TEST(Exchange, BucketsAreTestedWithSumsThatAreKnown) {
  const Graph graph = tested_graph();
  for (const Precision type : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const auto all_reduce = all_reduce_on_device();
    const auto program =
        program_on(graph, world->rank(), {all_reduce.get(), tested().large_bucket, type});
    int64_t bytes = 0;
    const std::vector<BucketTest> tests = all_reduce->test(2);
    EXPECT_GT(tests.size(), 2u);
    for (const BucketTest& test : tests) {
      EXPECT_TRUE(test.exact) << to_string(type);
      EXPECT_EQ(test.type, type);
      EXPECT_GT(test.seconds, 0);
      bytes += test.bytes;
    }
    const int64_t values = bytes / element_bytes(type);
    EXPECT_GE(values, graph.parameter_count()) << "with the padding of slices";
    EXPECT_LT(values, graph.parameter_count() * 102 / 100);
  }
}

// The relative error of one rounding to nearest is at most 2^-9 in bf16 and 2^-12 in fp16.
TEST(Exchange, GradientsTravelInTheTypeThatIsAskedFor) {
  const Graph graph = tested_graph();
  const auto all_reduce = all_reduce_on_device();
  const struct {
    Precision type;
    double least, most;  // relative difference from the mean
    LossScale scale;
  } cases[] = {{Precision::bf16, 0x1p-12, 0x1p-7, {}},
               {Precision::fp16, 0x1p-15, 0x1p-10, {.initial = 16}},
               {Precision::fp32, 0, device == "cpu" ? 1e-6 : 1e-5, {}}};
  const std::vector<double>& wanted = mean_of_gradients(graph);
  for (const auto& sent : cases) {
    const auto program = program_on(graph, world->rank(),
                                    {.all_reduce = all_reduce.get(),
                                     .bucket_bytes = tested().small_bucket,
                                     .gradient_type = sent.type,
                                     .loss_scale = sent.scale});
    const double difference = relative_difference(gradients_of_one_step(*program), wanted);
    EXPECT_GE(difference, sent.least) << to_string(sent.type);
    EXPECT_LE(difference, sent.most) << to_string(sent.type);
  }
}

TEST(Exchange, WhatIsComputedIn16BitsTravelsInOtherTypes) {
  if (device != "cuda") GTEST_SKIP() << "a CPU leaves gradients in fp32";
  const Graph graph = tested_graph();
  const auto all_reduce = all_reduce_on_device();
  const auto gradients_sent_as = [&](std::optional<Precision> type) {
    const auto program = program_on(
        graph, world->rank(),
        {all_reduce.get(), tested().small_bucket, type, Precision::fp16, {.initial = 16}});
    std::vector<float> gradients = gradients_of_one_step(*program);
    for (const BucketTest& test : all_reduce->test(1)) {
      EXPECT_EQ(test.type, type.value_or(test.type));
    }
    return gradients;
  };
  const std::vector<float> computed = gradients_sent_as({});
  const std::vector<double> wanted(computed.begin(), computed.end());
  EXPECT_LE(relative_difference(gradients_sent_as(Precision::fp32), wanted), 0x1p-9);
  EXPECT_LE(relative_difference(gradients_sent_as(Precision::fp16), wanted), 0x1p-9);
  const double rounded = relative_difference(gradients_sent_as(Precision::bf16), wanted);
  EXPECT_GE(rounded, 0x1p-12) << "bf16 holds fewer bits than what is computed";
  EXPECT_LE(rounded, 0x1p-6);
}

TEST(Exchange, WhatFp16DoesNotHoldSkipsTheUpdateOnAllRanks) {
  const Graph graph = tested_graph();
  const auto all_reduce = all_reduce_on_device();
  const auto program =
      program_on(graph, world->rank(),
                 {.all_reduce = all_reduce.get(),
                  .gradient_type = Precision::fp16,
                  .loss_scale = {.initial = tested().too_large_scale, .dynamic = true}});
  const std::vector<float> before = program->parameters();
  int skipped = 0;
  for (bool skips = true; skips && skipped < 24; skipped += skips ? 1 : 0) {
    EXPECT_EQ(program->parameters(), before);
    program->enqueue_step();
    const StepRecord step = program->wait_step();
    skips = step.update_skipped;
    EXPECT_NE(skips, std::isfinite(step.gradient_norm));
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 24) << "the loss scale falls until the gradient fits";
  EXPECT_NE(program->parameters(), before);
  std::vector<int64_t> most{skipped, -skipped};
  world->maximum(most);
  EXPECT_EQ(most[0], -most[1]) << "all ranks skip the same steps";
}

// Each rank gives `mine`; what the first element of their sum is.
template <class T>
float sum_in_host_memory(Precision type, float mine) {
  const auto all_reduce = all_reduce_on_device(AllReduceKind::mpi);
  std::vector<T> values(1023, from_float<T>(mine));  // not a multiple of the ranks
  all_reduce->bind({{values.data(), static_cast<int64_t>(values.size()), type}});
  all_reduce->start(0, 1, nullptr);
  all_reduce->finish(nullptr);
  for (const T& value : values) EXPECT_EQ(value.bits, values[0].bits);
  return to_float(values[0]);
}

TEST(Exchange, MpiRoundsSumsOf16BitsToNearestEven) {
  const bool first = world->rank() == 0;
  const auto ranks = static_cast<float>(world->size());
  const auto fp16 = [](float mine) { return sum_in_host_memory<Fp16>(Precision::fp16, mine); };
  const auto bf16 = [](float mine) { return sum_in_host_memory<Bf16>(Precision::bf16, mine); };
  EXPECT_EQ(fp16(first ? 2048 : 2), 2048 + 2 * (ranks - 1)) << "exact";
  EXPECT_EQ(fp16(0x1p-24f), ranks * 0x1p-24f) << "subnormal";
  EXPECT_EQ(fp16(-40000), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(fp16(first ? NAN : 1)));
  EXPECT_EQ(bf16(first ? 256 : 2), 256 + 2 * (ranks - 1)) << "exact";
  EXPECT_EQ(bf16(3e38f), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(bf16(first ? NAN : 1)));
  if (world->size() > 2) return;  // the order of more is MPI's
  EXPECT_EQ(fp16(first ? 2048 : 1), 2048) << "to even";
  EXPECT_EQ(fp16(first ? 2048 : 3), 2052) << "to even";
  EXPECT_EQ(fp16(first ? 65504 : 15), 65504);
  EXPECT_EQ(fp16(first ? 65504 : 16), std::numeric_limits<float>::infinity());
  EXPECT_EQ(bf16(first ? 256 : 1), 256) << "to even";
  EXPECT_EQ(bf16(first ? 256 : 3), 260) << "to even";
}

// All values of a type, each with another one.
template <class T>
void expect_sums_one_by_one(Precision type) {
  const int64_t count = 0x10000 + 3;
  const auto given = [](int64_t i, int rank) {
    return T{static_cast<uint16_t>(rank == 0 ? i : 40503 * i + 7)};
  };
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(given(i, world->rank()));
  const auto all_reduce = all_reduce_on_device(AllReduceKind::mpi);
  all_reduce->bind({{values.data(), count, type}});
  all_reduce->start(0, 1, nullptr);
  all_reduce->finish(nullptr);
  for (int64_t i = 0; i < count; ++i) {
    const float sum = to_float(given(i, 0)) + to_float(given(i, 1));
    if (std::isnan(sum)) {
      ASSERT_TRUE(std::isnan(to_float(values[i]))) << i;
    } else {
      ASSERT_EQ(values[i].bits, from_float<T>(sum).bits) << i;
    }
  }
}

TEST(Exchange, MpiSums16BitsAsOneByOneInFp32) {
  if (world->size() > 2) GTEST_SKIP() << "the order of more is MPI's";
  expect_sums_one_by_one<Fp16>(Precision::fp16);
  expect_sums_one_by_one<Bf16>(Precision::bf16);
}

}  // namespace
}  // namespace nearmetal
