// The CUDA backend's plans for a step, made without a GPU.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "models/networks/registry.h"
#include "tests/ops/graphs.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

double bytes(const LoweredStep& step) {
  return std::accumulate(step.kernels.begin(), step.kernels.end(), 0.0,
                         [](double sum, const Kernel& kernel) { return sum + kernel.bytes; });
}

TEST(CudaLowering, FusionSavesBytesAndNoArithmetic) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const ProgramOptions options = options_of(Precision::fp16);
  LoweringChoices plain;
  plain.stem = StemForm::pad_to_4;
  const LoweredStep apart = lowered(graph, options, plain);
  const LoweredStep fused = lowered(graph, options, all_fused(graph, options));
  EXPECT_DOUBLE_EQ(flops(fused), flops(apart));
  EXPECT_LT(bytes(fused), 0.95 * bytes(apart));
  EXPECT_LT(fused.kernels.size(), apart.kernels.size());
  EXPECT_THAT(fused.kernels, Contains(Field(&Kernel::name, "layer1.0.bn3 + layer1.0.conv3")));
  EXPECT_THAT(fused.kernels, Contains(Field(&Kernel::name, "bn1 + relu + maxpool + conv1")));
}

// The kernel for 1x1 convolutions must not be taken for a 3x3 one of the same channels.
TEST(CudaLowering, OnlyPointwiseConvolutionsAreFused) {
  const Graph graph = build_network("resnet50", {64, 10});
  const ProgramOptions options = options_of(Precision::bf16);
  const LoweredStep step = lowered(graph, options, all_fused(graph, options));
  int fused = 0;
  for (const Kernel& kernel : step.kernels) {
    if (kernel.implementation != "own fused") continue;
    ++fused;
    EXPECT_THAT(kernel.name, Not(HasSubstr("conv2"))) << kernel.name;
  }
  EXPECT_GT(fused, 0);
}

TEST(CudaLowering, ForwardOnlyHasNoBackwardKernels) {
  const Graph graph = build_network("resnet18", {64, 10});
  ProgramOptions options = options_of(Precision::fp16);
  options.forward_only = true;
  const LoweredStep step = lowered(graph, options, {});
  EXPECT_THAT(step.kernels, Contains(Field(&Kernel::name, HasSubstr("layer4.1.conv2"))));
  for (const Kernel& kernel : step.kernels) EXPECT_NE(kernel.phase, Phase::backward) << kernel.name;
}

ConvolutionShape data_gradient_of(const LoweredStep& step, const std::string& name) {
  for (const Kernel& kernel : step.kernels) {
    if (kernel.name != name || !kernel.convolution) continue;
    if (kernel.convolution->op == ConvolutionOp::backward_data) {
      return kernel.convolution->shape;
    }
  }
  throw std::out_of_range(name);
}

// At the input of a strided shortcut three of four pixels have no gradient.
TEST(CudaLowering, StridedShortcutsLeaveTheGradientOfEvenPixels) {
  const ProgramOptions options = options_of(Precision::fp16);
  const Graph graph = build_network("resnet50", {224, 1000});
  const LoweredStep step = lowered(graph, options, {});
  const ConvolutionShape shortcut = data_gradient_of(step, "layer2.0.downsample.0");
  EXPECT_EQ(shortcut.stride, 1);
  EXPECT_EQ(shortcut.input_height, 28);
  EXPECT_EQ(shortcut.input_elements(), 4 * 28 * 28 * 256);
  const double tensor = 2.0 * 4 * 56 * 56 * 256;
  const Kernel& sums =
      kernel_of(step, Phase::backward, "layer1.2.bn3 + layer1.2.relu", "own sums sweep");
  EXPECT_DOUBLE_EQ(sums.bytes, tensor * (3 + 1.0 / 4 + 1.0 / 16));  // dy, x, dz; dy_second; mask
  const LoweredStep by_moments =
      lowered(graph, options, without_fused_128(all_fused(graph, options)));
  EXPECT_DOUBLE_EQ(
      kernel_of(by_moments, Phase::backward, "layer1.2.bn3 + layer1.2.relu", "own sums sweep")
          .bytes,
      tensor * (2 + 1.0 / 4 + 1.0 / 16));  // no x
  // The first shortcut reads what pooling left, whose gradient has no such form.
  EXPECT_EQ(data_gradient_of(step, "layer1.0.downsample.0").input_height, 56);
}

// Where both readers of a block's output are strided, one gradient has all pixels.
TEST(CudaLowering, OneOfTwoStridedReadersLeavesEvenPixels) {
  const Graph graph = build_network("resnet50_v1", {224, 1000});
  const LoweredStep step = lowered(graph, options_of(Precision::bf16), {});
  EXPECT_EQ(data_gradient_of(step, "layer3.0.conv1").input_height, 28);
  EXPECT_EQ(data_gradient_of(step, "layer3.0.downsample.0").input_height, 14);
}

// Neither the output of the last block nor its gradient is stored: only their means over the
// pixels.
TEST(CudaLowering, LastBlockEndKeepsMeansAlone) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const LoweredStep step = lowered(graph, options_of(Precision::fp16), {});
  const double tensor = 2.0 * 4 * 7 * 7 * 2048, mean = tensor / 49, mask = tensor / 16;
  const std::string end = "layer4.2.bn3 + layer4.2.relu";
  EXPECT_DOUBLE_EQ(kernel_of(step, Phase::forward, end + " + avgpool", "own sweep").bytes,
                   2 * tensor + mean + mask);
  EXPECT_DOUBLE_EQ(kernel_of(step, Phase::backward, end, "own sums sweep").bytes,
                   2 * tensor + mean + mask);
  EXPECT_THAT(step.kernels, Not(Contains(Field(&Kernel::name, "avgpool"))));
}

// No sweep is compiled for the mean of a block whose residual is normalised, too.
TEST(CudaLowering, OfOneBlockTheMeanIsTakenApart) {
  const LoweredStep step = lowered(bottleneck_graph(32), options_of(Precision::fp16), {});
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    EXPECT_THAT(step.kernels,
                Contains(AllOf(Field(&Kernel::name, "avgpool"), Field(&Kernel::phase, phase))));
  }
}

// At a block end by second moments a sums sweep takes no more than the ReLU's mask and the sums of
// the gradient: the fused backward kernel of the block behind it takes both on.
TEST(CudaLowering, AFusedConvolutionJoinsTheGradientsBeforeIt) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const ProgramOptions options = options_of(Precision::fp16);
  const LoweredStep step = lowered(graph, options, all_fused(graph, options));
  const double wide = 2.0 * 4 * 56 * 56 * 256, narrow = wide / 4;
  const auto joined = [&](const std::string& block, const std::string& end) {
    return kernel_of(step, Phase::backward, block + ".bn1 + " + block + ".conv1 + " + end + ".relu",
                     "own fused");
  };
  const auto sums = [&](const std::string& name) {
    return kernel_of(step, Phase::backward, name, "own sums sweep");
  };
  // x, dy_second, dx; dz, y
  EXPECT_DOUBLE_EQ(joined("layer1.2", "layer1.1").bytes, 3 * wide + 2 * narrow);
  EXPECT_THROW(sums("layer1.1.bn3 + layer1.1.relu"), std::out_of_range);
  // The first block's residual is normalised, too, and takes sums of its own.
  EXPECT_DOUBLE_EQ(joined("layer1.1", "layer1.0").bytes, 3 * wide + 2 * narrow);
  EXPECT_THROW(sums("layer1.0.bn3 + layer1.0.downsample.1 + layer1.0.relu"), std::out_of_range);
  EXPECT_DOUBLE_EQ(sums("layer1.0.downsample.1").bytes, 2 * wide);
  // Of the reader of the stage's output: dz and y have 128 channels, dy_second the even pixels.
  EXPECT_DOUBLE_EQ(joined("layer2.0", "layer1.2").bytes, 2.25 * wide + 2 * (2 * narrow));
  EXPECT_THROW(sums("layer1.2.bn3 + layer1.2.relu"), std::out_of_range);
  EXPECT_DOUBLE_EQ(joined("layer2.2", "layer2.1").bytes, (3 + 2.0 / 4) * wide / 2);
  // The reader of the next stage's output has no such kernel.
  EXPECT_GT(sums("layer2.3.bn3 + layer2.3.relu").bytes, wide);
}

// Which pixels the other gradient has is part of what the kernel computes.
TEST(CudaLowering, AJoinedGradientOfEvenPixelsIsToldInTheList) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const ProgramOptions options = options_of(Precision::fp16);
  const std::string text = text_of(plan_ops(graph, options, all_fused(graph, options), {}));
  EXPECT_THAT(text, ContainsRegex("pointwise_backward \\[layer2.0.bn1 [^\n]*"
                                  "dx_second=gradient of layer1.2.relu at even pixels by "
                                  "layer2.0.downsample.0 [^\n]*the second at even pixels"));
  EXPECT_THAT(text, Not(ContainsRegex("pointwise_backward \\[layer2.1.bn1 [^\n]*even pixels")));
}

// Pooling, ReLU and bias go over what the convolution before them leaves at once.
TEST(CudaLowering, BiasReluAndPoolingAreOneSweep) {
  const ProgramOptions options = options_of(Precision::fp16);
  const Graph graph = build_network("vgg16", {224, 1000});
  const LoweredStep apart = lowered(graph, options, {});
  const double output = 4 * 64.0 * 224 * 224;  // of the first two convolutions, in elements
  const std::string pooled = "features.2.bias + features.3 + features.4";
  EXPECT_DOUBLE_EQ(kernel_of(apart, Phase::forward, pooled, "own sweep").bytes,
                   (2 + 2.0 / 4 + 1.0 / 4) * output);
  EXPECT_DOUBLE_EQ(kernel_of(apart, Phase::backward, pooled, "own sweep").bytes,
                   (2 + 2.0 / 4 + 1.0 / 4) * output);
  const std::string biased = "features.0.bias + features.1";
  EXPECT_DOUBLE_EQ(kernel_of(apart, Phase::forward, biased, "own sweep").bytes, 4 * output);

  const LoweredStep fused = lowered(graph, options, all_fused(graph, options));
  EXPECT_THAT(
      fused.kernels,
      Not(Contains(AllOf(Field(&Kernel::name, biased), Field(&Kernel::phase, Phase::forward)))));
  EXPECT_DOUBLE_EQ(flops(fused), flops(apart));
}

TEST(CudaLowering, ALayerBeforeABatchNormAddsNoBias) {
  const ProgramOptions options = options_of(Precision::fp16);
  const LoweredStep step = lowered(build_network("vgg16_bn", {64, 10}), options, {});
  for (const Kernel& kernel : step.kernels) {
    EXPECT_THAT(kernel.name, Not(HasSubstr("features.0.bias")));
  }
  EXPECT_THAT(step.kernels, Contains(Field(&Kernel::name, "features.1 + features.2")));
}

TEST(CudaLowering, EveryNodeThatNoPatternTakesHasItsOwnKernel) {
  const ProgramOptions options = options_of(Precision::bf16);
  const Graph graph = plain_graph({3, 12, 12});
  const LoweredStep step = lowered(graph, options, {});
  for (const char* const name : {"stem.bias + pool1", "norm1", "positive", "add1", "add2", "mixed",
                                 "norm2", "pool2", "conv2.bias + relu + pool3", "hidden.bias"}) {
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const bool passes_on = std::string(name).starts_with("add") && phase == Phase::backward;
      EXPECT_EQ(std::ranges::any_of(step.kernels,
                                    [&](const Kernel& kernel) {
                                      return kernel.name == name && kernel.phase == phase;
                                    }),
                !passes_on)
          << name << " " << to_string(phase);
    }
  }
  // Three nodes read what the first pooling leaves.
  EXPECT_THAT(step.kernels, Contains(Field(&Kernel::name, "pool1 gradients")).Times(2));
}

TEST(CudaLowering, SaysWhatItCannotCompute) {
  Graph odd("odd");
  int x = odd.conv(odd.input({3, 8, 8}), "wide", 12, {3, 1, 1});
  odd.softmax_cross_entropy(odd.linear(x, "fc", 10), "loss");
  try {
    lowered(odd, options_of(Precision::fp16), {});
    ADD_FAILURE() << "12 channels were taken";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("wide: its channels are not a multiple of 8"));
  }
}

TEST(CudaStem, FormsPlaceEveryWeightOnce) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const Node& conv = graph.node(1);
  for (const StemForm form : {StemForm::pad_to_4, StemForm::pad_to_8, StemForm::space_to_depth}) {
    const FlatLayout layout = flat_layout(graph, form);
    std::vector<int64_t> places;
    for (int64_t i = 0; i < graph.parameters().front().size; ++i) {
      places.push_back(layout.slices.front().place(i));
    }
    EXPECT_EQ(places.size(), 64u * 3 * 7 * 7);
    const ConvolutionShape shape = stem_shape(form, conv, graph.image(), 1);
    std::sort(places.begin(), places.end());
    EXPECT_EQ(std::adjacent_find(places.begin(), places.end()), places.end())
        << static_cast<int>(form);
    EXPECT_GE(places.front(), 0);
    EXPECT_LT(places.back(), shape.weight_elements());
  }
}

// Patches that do not overlap are read by a filter of 1x1, in every precision.
TEST(CudaStem, PatchesBecomePixels) {
  const Graph graph = small_vit_graph({3, 9, 15}, 10, 8);
  const Node& conv = graph.node(1);
  EXPECT_THAT(stem_forms(conv, graph.image(), Precision::fp32), Contains(StemForm::patches));
  const ConvolutionShape shape = stem_shape(StemForm::patches, conv, graph.image(), 2);
  EXPECT_EQ(shape.kernel, 1);
  EXPECT_EQ(shape.input_channels, 32);  // 27, padded
  EXPECT_EQ(shape.input_height, shape.output_height);
  const ImageLayout images = stem_image_layout(StemForm::patches, conv, graph.image(), 2);
  EXPECT_EQ(images.stored_elements(), shape.input_elements());
  // The weight of channel 1, row 2, column 0 is read where the image has that value of a patch.
  const FlatLayout layout = flat_layout(graph, StemForm::patches);
  EXPECT_EQ(layout.slices[conv.parameters[0]].place(9 + 2 * 3), (2 * 3 + 0) * 3 + 1);
  EXPECT_EQ(layout.slices[conv.parameters[0]].elements, conv.shape.channels * 32);

  const Graph resnet = build_network("resnet50", {224, 1000});
  EXPECT_THAT(stem_forms(resnet.node(1), resnet.image(), Precision::fp16),
              Not(Contains(StemForm::patches)));
}

TEST(CudaStem, SpaceToDepthIsFor16Bits) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const auto forms = [&](Precision precision) {
    return stem_forms(graph.node(1), graph.image(), precision);
  };
  EXPECT_THAT(forms(Precision::fp16), Contains(StemForm::space_to_depth));
  EXPECT_THAT(forms(Precision::fp32), Not(Contains(StemForm::space_to_depth)));
}

TEST(CudaFlatLayout, SlicesHoldEachWeightAtItsPlaceAndZerosElsewhere) {
  for (const Graph& graph :
       {build_network("resnet18", {32, 10}), small_vgg_graph({3, 13, 18}, false)}) {
    const FlatLayout layout = flat_layout(graph, StemForm::pad_to_4);
    for (size_t p = 0; p < layout.slices.size(); ++p) {
      const ParameterSlice& slice = layout.slices[p];
      std::vector<float> values(graph.parameters()[p].size);
      std::iota(values.begin(), values.end(), 1.0f);
      const std::vector<float> flat = slice.to_flat(values);
      ASSERT_EQ(std::ssize(flat), slice.elements);
      int64_t misplaced = 0;
      for (size_t i = 0; i < values.size(); ++i) misplaced += flat[slice.place(i)] != values[i];
      EXPECT_EQ(misplaced, 0) << graph.parameters()[p].name;
      EXPECT_EQ(std::ranges::count(flat, 0.0f), slice.elements - std::ssize(values));
      std::vector<float> back(values.size());
      slice.to_canonical(flat, back);
      EXPECT_EQ(back, values) << graph.parameters()[p].name;
    }
  }
}

TEST(CudaFlatLayout, HoldsEveryParameterOnceLastLayerFirst) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const FlatLayout layout = flat_layout(graph, StemForm::pad_to_4);
  ASSERT_EQ(layout.slices.size(), graph.parameters().size());
  std::map<int64_t, int64_t> elements_at;  // by offset
  int64_t elements = 0;
  for (size_t p = 0; p < layout.slices.size(); ++p) {
    const int64_t offset = layout.offset(static_cast<int>(p));
    EXPECT_TRUE(elements_at.emplace(offset, layout.slices[p].elements).second) << offset;
    elements += layout.slices[p].elements;
  }
  EXPECT_GE(elements, graph.parameter_count());
  int64_t end = 0;
  for (const auto& [offset, length] : elements_at) {
    EXPECT_GE(offset, end) << "overlaps the slice before it";
    end = offset + length;
  }
  EXPECT_LE(end, layout.elements());
  EXPECT_LT(layout.slices[graph.node(graph.nodes().size() - 2).parameters[0]].offset,
            layout.slices[graph.node(1).parameters[0]].offset);
}

TEST(CudaPlanDevice, SaysWhichPropertyIsMissing) {
  try {
    const PlanDevice device(std::string("{}"));
    FAIL() << "took a device without properties";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("maxGridSize"));
  }
}

}  // namespace
}  // namespace nearmetal::cuda
