// Gradients that copy engines sum through the memory of the host, run by each of several processes
// that mpirun starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/networks/registry.h"
#include "tests/comm/job.h"

namespace nearmetal {
namespace {

class ThroughHost : public testing::Test {
 protected:
  void SetUp() override {
    if (device != "cuda") GTEST_SKIP() << "for GPUs";
  }

  static std::unique_ptr<AllReduce> join() { return all_reduce_on_device(AllReduceKind::host); }

  TestedStep step_with(AllReduce& all_reduce, Precision precision) const {
    return {&all_reduce, 1 << 20, {}, precision, {.initial = 16}};
  }

  const Graph graph_ = build_network("resnet18", {32, 10});
};

TEST_F(ThroughHost, SumsOfKnownValuesAreExact) {
  const auto all_reduce = join();
  EXPECT_THAT(all_reduce->library(), testing::StartsWith("copy engines, driver of CUDA "));
  EXPECT_EQ(all_reduce->ranks(), world->size());
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    const auto program = program_on(graph_, world->rank(), step_with(*all_reduce, precision));
    const std::vector<BucketTest> tests = all_reduce->test(5);
    EXPECT_GT(tests.size(), 2U);
    for (const BucketTest& test : tests) {
      EXPECT_TRUE(test.exact) << test.bytes << " bytes of " << to_string(test.type);
      EXPECT_GT(test.seconds, 0);
    }
  }
}

// The parameters after some steps, of which so many are on their way at once.
std::vector<float> parameters_after_steps(Program& program, int ahead) {
  constexpr int steps = 40;
  for (int step = 0; step < steps + ahead; ++step) {
    if (step >= ahead) {
      const StepRecord record = program.wait_step();
      EXPECT_TRUE(std::isfinite(record.loss));
      EXPECT_FALSE(record.update_skipped);
      EXPECT_GT(record.exposed_communication_seconds, 0);
    }
    if (step < steps) program.enqueue_step();
  }
  return program.parameters();
}

TEST_F(ThroughHost, StepsAreThoseOfNcclButForRounding) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const auto gradients_by = [&](AllReduce& all_reduce) {
      return gradients_of_one_step(
          *program_on(graph_, world->rank(), step_with(all_reduce, precision)));
    };
    const std::vector<float> by_nccl = gradients_by(*all_reduce_on_device());
    EXPECT_LT(relative_difference(gradients_by(*join()), {by_nccl.begin(), by_nccl.end()}),
              precision == Precision::fp32 ? 1e-5 : 0x1p-9)
        << to_string(precision);
  }
}

// Ranks run into one another's next steps where the host waits for none.
TEST_F(ThroughHost, StepsThatAreQueuedComputeTheSame) {
  const auto all_reduce = join();
  const TestedStep step = step_with(*all_reduce, Precision::fp32);
  const auto program = program_on(graph_, world->rank(), step);
  const std::vector<float> before = program->parameters();
  const std::vector<float> wanted = parameters_after_steps(*program, 1);
  EXPECT_NE(before, wanted);
  const auto again = program_on(graph_, world->rank(), step);
  const std::vector<float> found = parameters_after_steps(*again, again->max_steps_in_flight());
  EXPECT_TRUE(found == wanted) << "bit by bit";
  const auto bytes = std::string(reinterpret_cast<const char*>(found.data()), 4 * found.size());
  for (const std::string& other : world->all_gather(bytes)) EXPECT_TRUE(other == bytes);
}

}  // namespace
}  // namespace nearmetal
