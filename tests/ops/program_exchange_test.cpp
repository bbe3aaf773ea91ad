// The work of a backend around the sums of gradients, with sums of one rank.

#include <cmath>
#include <vector>

#include "models/graph.h"
#include "models/program.h"
#include "models/sixteen_bits.h"
#include "tests/ops/program_test_cases.h"
#include "tests/ops/sum_of_one.h"

namespace nearmetal {
namespace {

float rounded(Precision type, float value) {
  float result = 0;
  with_stored_type(type, [&]<class T>() { result = to_float(from_float<T>(value)); });
  return result;
}

class SentAs : public ProgramTest {
 protected:
  // Takes the same step without a sum and with one.
  void take_steps(Precision type, LossScale scale = {}) {
    const Graph graph = small_graph();
    ProgramOptions options = with_batch();
    options.gradient_type = type;
    options.loss_scale = scale;
    const auto program = started(backend(), graph, options);
    step(*program);
    computed_ = program->gradients();
    program->exchange_gradients(sum_, 1 << 10);
    program->restart(initial_parameters(graph, 1));
    record_ = step(*program);
    averaged_ = program->gradients();
  }

  SumOfOne sum_;
  std::vector<float> computed_, averaged_;
  StepRecord record_;
};

TEST_F(SentAs, EveryGradientIsRoundedOnce) {
  for (const Precision type : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    take_steps(type);
    EXPECT_GT(sum_.buckets.size(), 1u);
    for (const GradientBucket& bucket : sum_.buckets) EXPECT_EQ(bucket.type, type);
    std::vector<float> wanted;
    for (const float value : computed_) wanted.push_back(rounded(type, value));
    EXPECT_EQ(averaged_, wanted) << to_string(type);
    EXPECT_FALSE(record_.update_skipped);
  }
}

TEST_F(SentAs, BeyondFp16TheUpdateIsSkipped) {
  take_steps(Precision::fp16, {.initial = 0x1p24, .dynamic = true});
  EXPECT_TRUE(record_.update_skipped);
  EXPECT_FALSE(std::isfinite(record_.gradient_norm));
}

}  // namespace
}  // namespace nearmetal
