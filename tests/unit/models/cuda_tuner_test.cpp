// Plans that the tuner takes over, and decisions by times, without a GPU.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "models/cuda/tuning/tuner.h"
#include "models/networks/registry.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

constexpr TuningDevice hopper{.compute_capability_major = 9, .multiprocessors = 132};

class CudaTuner : public ::testing::Test {
 protected:
  // Choices for all that competes, of which convolutions load no plan.
  std::vector<KernelChoice> plans(bool with_optional) const {
    std::map<std::string, KernelChoice> plans;
    for (const ConvolutionProblem& problem : problems_) {
      plans[problem.key()] = {problem.key(), no_implementation, 0, 0};
      for (const OwnKernel& kernel : own_kernels(problem, 9, 132)) {
        if (kernel.optional && !with_optional) continue;
        plans[kernel.key] = {kernel.key, own_implementation, 1e-3, 0};
      }
    }
    std::vector<KernelChoice> list;
    for (const auto& [key, plan] : plans) list.push_back(plan);
    return list;
  }
  std::vector<KernelChoice> used(const std::vector<KernelChoice>& pinned) const {
    Tuner tuner(hopper, Kernels::fastest, pinned, true);
    tuner.choose(problems_);
    return tuner.used();
  }

  const LoweredStep step_ =
      lowered(build_network("resnet50", {224, 1000}), options_of(Precision::fp16), {});
  const std::vector<ConvolutionProblem> problems_ = distinct_problems(step_, true);
};

TEST_F(CudaTuner, PinnedPlansOfEarlierVersionsAreTakenAsTheyAre) {
  const std::vector<KernelChoice> earlier = plans(false);
  EXPECT_THAT(used(earlier), UnorderedElementsAreArray(earlier));
  Tuner tuner(hopper, Kernels::fastest, earlier, true);
  tuner.choose(problems_);
  EXPECT_THAT(tuner.times().faster_by_moments(step_), IsEmpty());
}

TEST_F(CudaTuner, PinnedPlansAreReproduced) {
  std::vector<KernelChoice> all = plans(true);
  ASSERT_GT(all.size(), plans(false).size());
  const auto fused = std::ranges::find_if(
      all, [](const KernelChoice& plan) { return plan.key.starts_with("fused conv"); });
  ASSERT_NE(fused, all.end());
  fused->implementation = refused_implementation;
  EXPECT_THAT(used(all), UnorderedElementsAreArray(all));
}

TEST_F(CudaTuner, PinnedPlansMustHaveWhatIsNotOptional) {
  std::vector<KernelChoice> lacking = plans(true);
  std::erase_if(lacking,
                [](const KernelChoice& plan) { return plan.key.starts_with("fused conv"); });
  EXPECT_THAT([&] { used(lacking); },
              ThrowsMessage<std::runtime_error>(
                  HasSubstr("the pinned plans have none for 'fused conv backward_data")));
}

// The times of what computes the convolution with so many inputs at the end of a bottleneck block,
// by moments and without. The least time without: 0.1 + 0.02 + 0.3 + 0.25 ms, or with products of
// cuDNN's 0.1 + 0.02 + 0.3 + 2 x 0.09 + 0.12.
class CudaTimes : public ::testing::Test {
 protected:
  void set(const std::string& key, double milliseconds) {
    choices_[key] = {key, own_implementation, milliseconds * 1e-3, 0};
  }
  void set_all(const ConvolutionProblem& problem, double by_moments) {
    const ConvolutionProblem data = problem.with(ConvolutionOp::backward_data);
    set(problem.key(), 0.1);
    set(forward_sweep_key(problem.with(ConvolutionOp::forward_statistics)), 0.02);
    set(residual_norm_key(problem), 0.3);
    set(data.key(), 0.09);
    set(problem.with(ConvolutionOp::backward_weights).key(), 0.09);
    set(apply_sweep_key(data), 0.12);
    set(moments_key(problem), by_moments);
  }
  MomentsChoices faster() const { return KernelTimes(choices_).faster_by_moments(step_); }

  const ConvolutionProblem stage1_ = last_of_block(64, 56), stage2_ = last_of_block(128, 28);
  const std::string fused_ = fused_backward_key(stage1_.with(ConvolutionOp::backward_data));
  const LoweredStep step_ =
      lowered(build_network("resnet50", {224, 1000}), options_of(Precision::fp16), {});
  std::map<std::string, KernelChoice> choices_;
};

TEST_F(CudaTimes, SecondMomentsAreTakenWhereTheyAreFaster) {
  set_all(stage1_, 0.66);  // both products among it
  set(fused_, 0.25);
  set_all(stage2_, 0.53);  // and 2 x 0.09
  EXPECT_THAT(faster(), UnorderedElementsAre(Pair(stage1_.key(), MomentsProducts::own),
                                             Pair(stage2_.key(), MomentsProducts::cudnn)));
  set(moments_key(stage1_), 0.68);
  EXPECT_THAT(faster(), UnorderedElementsAre(Pair(stage2_.key(), MomentsProducts::cudnn)));
  set(moments_key(stage2_), 0.55);
  EXPECT_THAT(faster(), IsEmpty());
}

TEST_F(CudaTimes, SecondMomentsCompeteWithStatisticsInTheConvolution) {
  set_all(stage2_, 0.53);
  set(stage2_.with(ConvolutionOp::forward_statistics).key(), 0.1);  // and not 0.1 + 0.02
  EXPECT_THAT(faster(), IsEmpty());
}

TEST_F(CudaTimes, AKernelForBothProductsThatErredIsNotUsedBySecondMoments) {
  set_all(stage1_, 0.4);
  choices_[fused_] = {fused_, refused_implementation, 0, 0};
  EXPECT_THAT(faster(), UnorderedElementsAre(Pair(stage1_.key(), MomentsProducts::cudnn)));
}

TEST_F(CudaTimes, SecondMomentsWithoutATimeAreNotTaken) {
  set_all(stage2_, 0.1);
  choices_.erase(moments_key(stage2_));
  EXPECT_THAT(faster(), IsEmpty());
}

// Between blocks of stage 1 the kernel for both products saves a sweep where the block before ends
// by second moments.
TEST_F(CudaTimes, AKernelThatJoinsGradientsIsTimedWithTheSweepThatItSaves) {
  ConvolutionProblem data = stage1_.with(ConvolutionOp::backward_data);
  std::swap(data.shape.input_channels, data.shape.output_channels);
  const auto takes = [&](const MomentsChoices& moments) {
    return KernelTimes(choices_).faster_with_fused_backward(step_, moments).contains(data.key());
  };
  const MomentsChoices moments{{stage1_.key(), MomentsProducts::own}};
  set(data.key(), 0.1);
  set(data.with(ConvolutionOp::backward_weights).key(), 0.1);
  set(apply_sweep_key(data), 0.1);
  set(fused_backward_key(data), 0.32);
  set(joined_backward_key(data), 0.5);
  set(joined_sums_key(data), 0.3);
  EXPECT_TRUE(takes(moments));
  EXPECT_FALSE(takes({}));
  EXPECT_FALSE(takes({{stage2_.key(), MomentsProducts::cudnn}}));
  set(joined_sums_key(data), 0.1);
  EXPECT_FALSE(takes(moments));
  choices_[fused_backward_key(data)] = {fused_backward_key(data), refused_implementation, 0, 0};
  set(joined_sums_key(data), 0.4);
  EXPECT_FALSE(takes(moments));
}

}  // namespace
}  // namespace nearmetal::cuda
