// Steps whose sweeps are cuDNN's alone, planned without a GPU.
#include <gmock/gmock.h>

#include <set>

#include "models/cuda/libraries/linear.h"
#include "models/inference.h"
#include "models/networks/registry.h"
#include "tests/ops/graphs.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;

ProgramOptions of_cudnn(Precision precision) {
  ProgramOptions options = options_of(precision);
  options.kernels = Kernels::cudnn;
  return options;
}

// The names of our own kernels; a convolution has its implementation once its plan is chosen.
std::set<std::string> own_kernel_names(const LoweredStep& step) {
  std::set<std::string> names;
  for (const Kernel& kernel : step.kernels) {
    if (kernel.implementation.starts_with("own")) names.insert(kernel.name);
  }
  return names;
}

TEST(CudaLibraries, OnlyWhatTheyLackIsOurs) {
  const Graph graph = build_network("resnet50", {224, 1000});
  for (const Precision precision : {Precision::fp16, Precision::bf16, Precision::fp32}) {
    const LoweredStep step = lowered(graph, of_cudnn(precision), {});
    EXPECT_THAT(own_kernel_names(step), ElementsAre("fc", "gradient norm", "labels", "loss", "sgd"))
        << to_string(precision);
    EXPECT_DOUBLE_EQ(flops(step), flops(lowered(graph, options_of(precision), {})));
  }
}

TEST(CudaLibraries, NamesOfProductsTellTheirClusters) {
  // As cuBLASLt 13.0 offers them on compute capability 9.0.
  const std::string start = "lt_19000000042_100000023_0_",
                    end = "_1fc3400000001_e0000000e_44000e000e";
  for (const char* small :
       {"2000000000003", "3000000000003", "5000000000003"}) {  // 1, 2 x 1, 1 x 2
    EXPECT_TRUE(has_small_clusters(start + small + end)) << small;
  }
  for (const char* large : {"4000000000003", "6000000000003", "7000000000003", "9000000000003"}) {
    EXPECT_FALSE(has_small_clusters(start + large + end)) << large;
  }
  EXPECT_TRUE(has_small_clusters("lt_17"));  // an algorithm without clusters
  EXPECT_FALSE(has_small_clusters("eng0_k24=17"));
}

TEST(CudaLibraries, NormsInFp16TakeWhatFollowsThem) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const LoweredStep step = lowered(graph, of_cudnn(Precision::fp16), {});
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const double tensor = 2.0 * 4 * 56 * 56 * 256, bits = tensor / 16;
    // The shortcut's norm is a kernel of its own: cuDNN normalises one of two summands.
    EXPECT_DOUBLE_EQ(kernel_of(step, phase, "layer1.0.downsample.1", "cudnn").bytes,
                     (phase == Phase::forward ? 2 : 3) * tensor + bits);
    EXPECT_DOUBLE_EQ(kernel_of(step, phase, "layer1.0.bn3 + layer1.0.relu", "cudnn").bytes,
                     (phase == Phase::forward ? 3 : 5) * tensor + bits);
    EXPECT_NO_THROW(kernel_of(step, phase, "maxpool", "cudnn"));
    EXPECT_NO_THROW(kernel_of(step, phase, "avgpool", "cudnn"));
  }
  // A block's output has two readers.
  EXPECT_NO_THROW(kernel_of(step, Phase::backward, "layer1.0.relu gradients", "cudnn"));
}

TEST(CudaLibraries, NormsInOtherPrecisionsAreNotFused) {
  const Graph graph = build_network("resnet18", {64, 10});
  const LoweredStep step = lowered(graph, of_cudnn(Precision::fp32), {});
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const char* const name : {"layer1.0.bn1", "layer1.0.relu"}) {
      EXPECT_NO_THROW(kernel_of(step, phase, name, "cudnn")) << name;
    }
  }
  EXPECT_THAT(step.kernels, Contains(Field(&Kernel::name, "layer1.0.add")));
}

TEST(CudaLibraries, ABiasIsAddedAndHasAGradientUnlessANormTakesItAway) {
  for (const auto& [model, has_gradient] : {std::pair("vgg16", true), {"vgg16_bn", false}}) {
    const Graph graph = build_network(model, {64, 10});
    const LoweredStep step = lowered(graph, of_cudnn(Precision::fp16), {});
    EXPECT_NO_THROW(kernel_of(step, Phase::forward, "features.0.bias", "cudnn")) << model;
    EXPECT_EQ(own_kernel_names(step).contains("features.0.bias"), has_gradient) << model;
  }
}

TEST(CudaLibraries, EveryNodeHasAKernel) {
  const Graph graph = plain_graph({3, 12, 12});
  const LoweredStep step = lowered(graph, of_cudnn(Precision::fp32), {});
  for (const char* const name : {"pool1", "norm1", "positive", "norm2", "pool2", "relu", "pool3"}) {
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      EXPECT_NO_THROW(kernel_of(step, phase, name, "cudnn")) << name << " " << to_string(phase);
    }
  }
  EXPECT_THAT(step.kernels, Contains(Field(&Kernel::name, "pool1 gradients")).Times(2));
}

TEST(CudaLibraries, InferenceTakesEpiloguesWhereThereArePlans) {
  const Graph graph = inference_graph(build_network("resnet50", {64, 10}));
  ProgramOptions options = of_cudnn(Precision::fp16);
  options.forward_only = true;
  const LoweredStep apart = lowered(graph, options, {});
  EXPECT_NO_THROW(kernel_of(apart, Phase::forward, "layer1.0.conv1.bias", "cudnn"));
  EXPECT_NO_THROW(kernel_of(apart, Phase::forward, "layer1.0.relu", "cudnn"));
  const LoweredStep fused = lowered(graph, options, all_fused(graph, options));
  EXPECT_THAT(fused.kernels, testing::Not(Contains(Field(&Kernel::name, "layer1.0.relu"))));
}

}  // namespace
}  // namespace nearmetal::cuda
