// Batch norm by second moments, as the CUDA backend plans it, without a GPU.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "models/networks/registry.h"
#include "models/pipeline_cuts.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

LoweringChoices without_moments(LoweringChoices choices) {
  choices.input_moments.clear();
  return choices;
}

std::string text_of(const Kernel& kernel) {
  if (!kernel.convolution) return kernel.name + ": " + kernel.implementation;
  // "conv backward_data fp16 ..."
  const std::string key = kernel.convolution->key();
  const size_t begin = key.find(' ') + 1;
  return kernel.name + ": " + key.substr(begin, key.find(' ', begin) - begin);
}

// The kernels whose name has this in it.
std::vector<std::string> kernels_of(const LoweredStep& step, Phase phase, const std::string& name) {
  std::vector<std::string> found;
  for (const Kernel& kernel : step.kernels) {
    if (kernel.phase == phase && kernel.name.find(name) != std::string::npos) {
      found.push_back(text_of(kernel));
    }
  }
  return found;
}

std::vector<std::string> all_kernels(const LoweredStep& step) {
  std::vector<std::string> found;
  for (const Kernel& kernel : step.kernels) found.push_back(text_of(kernel));
  return found;
}

int64_t tensors_of(const LoweredStep& step, int64_t bytes) {
  return std::ranges::count(step.tensors, bytes, &Tensor::bytes);
}

class CudaMoments : public ::testing::Test {
 protected:
  LoweredStep step(const LoweringChoices& choices) const {
    return lowered(graph_, options_, choices);
  }

  const Graph graph_ = build_network("resnet50", {224, 1000});
  const ProgramOptions options_ = options_of(Precision::fp16);
  const LoweringChoices fused_ = all_fused(graph_, options_);
};

TEST_F(CudaMoments, AreThereForTheLastConvolutionsOfStages1And2) {
  std::set<std::string> keys;
  for (const auto& [key, products] : fused_.input_moments) keys.insert(key);
  EXPECT_THAT(keys, IsSupersetOf({last_of_block(64, 56).key(), last_of_block(128, 28).key()}));
  EXPECT_EQ(fused_.input_moments.at(last_of_block(64, 56).key()), MomentsProducts::own);
  EXPECT_EQ(fused_.input_moments.at(last_of_block(128, 28).key()), MomentsProducts::cudnn);
}

// The blocks of stage 1 have lost the outputs of three last convolutions, and the gradients that
// are joined with others where they were stored, one for each block; those of stage 2 four outputs,
// the gradients there, which in stage 1 were formed on load before, too, and three that are joined.
TEST_F(CudaMoments, NeitherTheOutputNorItsGradientIsStored) {
  const LoweredStep before = step(without_moments(fused_)), now = step(fused_);
  const int64_t stage1 = 2 * 4 * 56 * 56 * 256, stage2 = 2 * 4 * 28 * 28 * 512;
  EXPECT_EQ(tensors_of(before, stage1) - tensors_of(now, stage1), 3 + 3);
  EXPECT_EQ(tensors_of(before, stage2) - tensors_of(now, stage2), 2 * 4 + 3);
  EXPECT_LT(static_cast<double>(now.memory.total_bytes),
            0.9 * static_cast<double>(before.memory.total_bytes));
}

TEST_F(CudaMoments, StatisticsStandBeforeTheConvolutionThatNormalisesItsOutput) {
  EXPECT_THAT(
      kernels_of(step(fused_), Phase::forward, "layer1.1"),
      ElementsAre("layer1.1.conv1: forward_statistics", "layer1.1.bn1 + layer1.1.relu1: own sweep",
                  "layer1.1.conv2: forward_statistics",
                  "layer1.1.bn2 + layer1.1.relu2: own sweep with second moments",
                  "layer1.1.bn3 + layer1.1.relu: own statistics by moments",
                  "layer1.1.conv3 + layer1.1.bn3 + layer1.1.relu: own"));
}

TEST_F(CudaMoments, TermsOfTheNormFollowTheProductsOfTheGradientBehindIt) {
  EXPECT_THAT(kernels_of(step(without_fused_128(fused_)), Phase::backward, "layer1.2.bn3"),
              ElementsAre("layer1.2.bn3 + layer1.2.relu: own sums sweep",
                          "layer1.2.bn3 + layer1.2.conv3: own gradient by moments"));
  EXPECT_THAT(kernels_of(step(fused_), Phase::backward, "layer1.2.bn3"),
              ElementsAre("layer1.2.bn3 + layer1.2.conv3: own gradient by moments"));
  EXPECT_THAT(
      kernels_of(step(fused_), Phase::backward, "layer1.2.conv3"),
      ElementsAre("layer1.2.conv3: own", "layer1.2.bn3 + layer1.2.conv3: own gradient by moments"));
  EXPECT_THAT(kernels_of(step(fused_), Phase::backward, "layer2.1.conv3"),
              ElementsAre("layer2.1.conv3: backward_weights",
                          "layer2.1.bn3 + layer2.1.conv3: own gradient by moments",
                          "layer2.1.conv3: backward_data"));
  EXPECT_THAT(kernels_of(step(fused_), Phase::backward, "layer2.1.bn2"),
              ElementsAre("layer2.1.bn2 + layer2.1.relu2: own sums sweep with term by moments",
                          "layer2.1.bn2 + layer2.1.relu2: own apply sweep"));
}

// cuDNN reads the weights that the statistics' kernel has scaled, and not the parameter's.
TEST_F(CudaMoments, TheGradientOfTheInputComesFromScaledWeights) {
  const LoweredStep lowered = step(fused_);
  const Kernel& statistics = kernel_of(lowered, Phase::forward, "layer2.1.bn3 + layer2.1.relu",
                                       "own statistics by moments");
  for (const Kernel& kernel : lowered.kernels) {
    if (kernel.name != "layer2.1.conv3" || !kernel.convolution) continue;
    const bool reads_weights = kernel.convolution->op == ConvolutionOp::backward_data;
    EXPECT_EQ(kernel.bound->tensor(Role::weights) != nullptr, reads_weights);
    if (!reads_weights) continue;
    EXPECT_THAT(kernel.operands, Contains(kernel.bound->tensor(Role::weights)));
    EXPECT_THAT(statistics.operands, Contains(kernel.bound->tensor(Role::weights)));
  }
}

TEST_F(CudaMoments, TheTunerSaysWhoComputesTheProducts) {
  LoweringChoices choices = fused_;
  choices.input_moments = {{last_of_block(64, 56).key(), MomentsProducts::cudnn}};
  EXPECT_THAT(kernels_of(step(choices), Phase::backward, "layer1.2.conv3"),
              ElementsAre("layer1.2.conv3: backward_weights",
                          "layer1.2.bn3 + layer1.2.conv3: own gradient by moments",
                          "layer1.2.conv3: backward_data"));
  EXPECT_THAT(all_kernels(step(choices)), testing::Not(Contains(HasSubstr("layer2.1.conv3: own"))));
}

// Input, residual, output and mask once each.
TEST_F(CudaMoments, TheConvolutionReadsItsInputAndTheResidualAlone) {
  const LoweredStep lowered = step(fused_);
  const double wide = 2.0 * 4 * 56 * 56 * 256;
  EXPECT_DOUBLE_EQ(
      kernel_of(lowered, Phase::forward, "layer1.1.conv3 + layer1.1.bn3 + layer1.1.relu", "own")
          .bytes,
      wide * (1.0 / 4 + 2 + 1.0 / 16));
  // dy of two readers and dz; before, x too.
  EXPECT_DOUBLE_EQ(kernel_of(step(without_fused_128(fused_)), Phase::backward,
                             "layer2.1.bn3 + layer2.1.relu", "own sums sweep")
                       .bytes,
                   wide / 2 * (3 + 1.0 / 16));
}

TEST_F(CudaMoments, ArithmeticOfTheNetworkIsCountedOnce) {
  EXPECT_DOUBLE_EQ(flops(step(fused_)), flops(step(without_moments(fused_))));
}

// In the first block of a stage the residual is the output of a convolution, which may be strided,
// with a batch norm of its own.
TEST_F(CudaMoments, ConvolutionsOfShortcutsAreThoseOfBefore) {
  const LoweredStep before = step(without_moments(fused_)), now = step(fused_);
  for (const std::string block : {"layer1.0", "layer2.0", "layer3.0", "layer4.0"}) {
    const auto is_of_shortcut = [&](const Kernel& kernel) {
      return kernel.convolution && kernel.name == block + ".downsample.0";
    };
    std::vector<std::vector<std::string>> keys;
    for (const LoweredStep* lowered : {&before, &now}) {
      keys.emplace_back();
      for (const Kernel& kernel : lowered->kernels) {
        if (is_of_shortcut(kernel)) keys.back().push_back(kernel.convolution->key());
      }
    }
    EXPECT_EQ(keys[0], keys[1]) << block;
    EXPECT_FALSE(keys[0].empty());
  }
  EXPECT_THAT(kernels_of(now, Phase::backward, "layer1.0.downsample"),
              ElementsAre("layer1.0.downsample.1: own sums sweep",
                          "layer1.0.downsample.1 + layer1.0.downsample.0: own fused"));
  EXPECT_THAT(
      kernels_of(now, Phase::backward, "layer2.0.downsample"),
      ElementsAre("layer2.0.downsample.1: own sums sweep", "layer2.0.downsample.1: own apply sweep",
                  "layer2.0.downsample.0: backward_weights",
                  "layer2.0.downsample.0: backward_data"));
}

// The last one stores means over the pixels in place of its output.
TEST_F(CudaMoments, TheLastBlockEndHasNone) {
  LoweringChoices choices = fused_;
  choices.input_moments[last_of_block(512, 7).key()] = MomentsProducts::cudnn;
  const LoweredStep lowered = step(choices);
  EXPECT_THAT(kernels_of(lowered, Phase::backward, "layer4.1.conv3"),
              Contains(HasSubstr("own gradient by moments")));
  EXPECT_EQ(kernels_of(lowered, Phase::forward, "layer4.2"),
            kernels_of(step(without_moments(fused_)), Phase::forward, "layer4.2"));
}

TEST_F(CudaMoments, ForwardPassesAloneHaveNone) {
  ProgramOptions options = options_;
  options.forward_only = true;
  EXPECT_EQ(all_kernels(lowered(graph_, options, fused_)),
            all_kernels(lowered(graph_, options, without_moments(fused_))));
}

TEST_F(CudaMoments, CudnnAloneHasNone) {
  ProgramOptions options = options_;
  options.kernels = Kernels::cudnn;
  EXPECT_EQ(all_kernels(lowered(graph_, options, fused_)),
            all_kernels(lowered(graph_, options, without_moments(fused_))));
  EXPECT_NE(all_kernels(step(fused_)), all_kernels(step(without_moments(fused_))))
      << "which kernels of our own make a difference";
}

TEST_F(CudaMoments, NetworksWithoutBottlenecksHaveNone) {
  EXPECT_FALSE(all_fused(graph_, options_).input_moments.empty()) << "resnet50";
  for (const char* const network : {"resnet18", "vgg16_bn"}) {
    const Graph graph = build_network(network, {224, 1000});
    EXPECT_TRUE(all_fused(graph, options_).input_moments.empty()) << network;
  }
}

TEST_F(CudaMoments, OtherPrecisionsHaveNone) {
  for (const Precision precision : {Precision::tf32, Precision::fp32}) {
    EXPECT_TRUE(all_fused(graph_, options_of(precision)).input_moments.empty());
  }
  EXPECT_FALSE(all_fused(graph_, options_of(Precision::bf16)).input_moments.empty());
}

// What a backward pass reads of the statistics is what the forward pass of its own micro-batch
// left.
TEST_F(CudaMoments, EachMicroBatchHasItsOwn) {
  const Graph whole = build_network("resnet50", {64, 10});
  const Graph stage = make_stage(whole, named_cuts(whole, "layer1.0,layer2", 3), 1).graph;
  for (const PipelinePlace& place :
       {PipelinePlace{}, PipelinePlace{3, 1, Schedule::one_forward_one_backward}}) {
    ProgramOptions options = options_;
    options.micro_batches = 4;
    options.pipeline = place;
    const Graph& graph = place.is_pipelined() ? stage : whole;
    std::vector<std::vector<const Tensor*>> left, read;
    for (const Kernel& kernel : lowered(graph, options, all_fused(graph, options)).kernels) {
      if (!kernel.name.starts_with("layer1.1.bn3")) continue;
      if (kernel.implementation == "own statistics by moments") left.push_back(kernel.operands);
      if (kernel.implementation == "own gradient by moments") read.push_back(kernel.operands);
    }
    ASSERT_EQ(left.size(), 4u);
    ASSERT_EQ(read.size(), 4u);
    std::set<const Tensor*> means;
    for (int i = 0; i < 4; ++i) {
      const Tensor* mean = left[i].front();
      means.insert(mean);
      // Of one micro-batch after the other, and with 1F1B in the same order.
      EXPECT_EQ(read[i].front(), mean) << i;
    }
    EXPECT_EQ(means.size(), 4u);
  }
}

}  // namespace
}  // namespace nearmetal::cuda
