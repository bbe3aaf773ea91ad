// Inference as the CUDA backend plans it, without a GPU.
#include <gmock/gmock.h>

#include <algorithm>

#include "models/inference.h"
#include "models/networks/registry.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::Contains;

int64_t convolutions_of(const LoweredStep& step, ConvolutionOp op) {
  return std::ranges::count_if(step.kernels, [op](const Kernel& kernel) {
    return kernel.convolution && kernel.convolution->op == op;
  });
}

ProgramOptions inference_options() {
  ProgramOptions options = options_of(Precision::fp16);
  options.forward_only = true;
  return options;
}

// The stem's convolution, one of ResNet-50's 53, has pooling behind it; 16 blocks end in a sum, 4
// of them with two convolutions before it.
TEST(CudaInference, InferenceIsAConvolutionALayer) {
  const Graph graph = inference_graph(build_network("resnet50", {224, 1000}));
  const ProgramOptions options = inference_options();
  const LoweredStep fused = lowered(graph, options, all_fused(graph, options));
  EXPECT_EQ(convolutions_of(fused, ConvolutionOp::forward), 1);
  EXPECT_EQ(convolutions_of(fused, ConvolutionOp::forward_activation), 32);
  EXPECT_EQ(convolutions_of(fused, ConvolutionOp::forward_residual), 16);
  EXPECT_EQ(convolutions_of(fused, ConvolutionOp::forward_bias), 4);
  EXPECT_EQ(fused.kernels.size(), 53u + 4);  // stem's pooling, mean, product, bias

  const LoweredStep apart = lowered(graph, options, {});
  EXPECT_EQ(convolutions_of(apart, ConvolutionOp::forward), 53);
  EXPECT_EQ(apart.kernels.size(), 2 * 53u + 3);
  EXPECT_DOUBLE_EQ(flops(fused), flops(apart));
  const double output = 4 * 256.0 * 56 * 56;  // of the first block, in elements
  EXPECT_DOUBLE_EQ(kernel_of(apart, Phase::forward,
                             "layer1.1.conv3.bias + layer1.1.add + layer1.1.relu", "own sweep")
                       .bytes,
                   3 * 2 * output);
}

// The shortcut's convolution comes last and adds what the branch has left.
TEST(CudaInference, AResidualIsThereBeforeItIsAdded) {
  const Graph graph = inference_graph(build_network("resnet50", {64, 10}));
  const ProgramOptions options = inference_options();
  const LoweredStep step = lowered(graph, options, all_fused(graph, options));
  std::vector<const Tensor*> written;
  for (const Kernel& kernel : step.kernels) {
    if (kernel.convolution && kernel.bound->tensor(Role::residual) != nullptr) {
      EXPECT_THAT(written, Contains(kernel.bound->tensor(Role::residual))) << kernel.name;
      EXPECT_THAT(kernel.operands, Contains(kernel.bound->tensor(Role::residual))) << kernel.name;
    }
    written.insert(written.end(), kernel.operands.begin(), kernel.operands.end());
  }
}

// ResNet-50: 25.6 million parameters, of which training holds gradient and momentum, too.
TEST(CudaInference, HoldsNoGradientsAndNoMomentum) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const FlatLayout layout = flat_layout(graph, StemForm::pad_to_4);
  const auto bytes = [&](bool forward_only) {
    ProgramOptions options = options_of(Precision::fp16);
    options.forward_only = forward_only;
    return PersistentMemory::bytes_needed(graph, options, layout, 132);
  };
  EXPECT_NEAR(static_cast<double>(bytes(false) - bytes(true)),
              (2.0 + 4) * static_cast<double>(layout.elements()), 1e6);
}

}  // namespace
}  // namespace nearmetal::cuda
