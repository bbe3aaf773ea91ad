// The CUDA backend's plans for a step, made without a GPU.
#include <gmock/gmock.h>

#include <map>
#include <numeric>

#include "models/cuda/lowering.h"
#include "models/cuda/own_kernels.h"
#include "models/resnet.h"

namespace nearmetal {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

ProgramOptions options_of(Precision precision) {
  ProgramOptions options;
  options.precision = precision;
  options.batch_size = 4;
  return options;
}

LoweredStep lowered(const Graph& graph, const ProgramOptions& options,
                    const LoweringChoices& choices) {
  static StepResources resources;
  static std::map<StemForm, FlatLayout> layouts;
  const FlatLayout& layout =
      layouts.insert_or_assign(choices.stem, flat_layout(graph, choices.stem)).first->second;
  return lower(graph, options, choices, layout, resources);
}

// Every fusion that there is, wherever it fits.
LoweringChoices all_fused(const Graph& graph, const ProgramOptions& options) {
  LoweringChoices choices;
  choices.stem = StemForm::pad_to_4;
  choices.own_stem_forward = choices.own_stem_backward = true;
  for (const ConvolutionProblem& problem :
       distinct_problems(lowered(graph, options, choices), false)) {
    if (problem.op == ConvolutionOp::forward) choices.fused_statistics.insert(problem.key());
    for (const OwnKernel& kernel : own_kernels(problem, 9, 132)) {
      if (kernel.key == pointwise_backward_key(problem)) {
        choices.fused_backward.insert(problem.key());
      }
    }
  }
  return choices;
}

double flops(const LoweredStep& step) {
  return std::accumulate(step.kernels.begin(), step.kernels.end(), 0.0,
                         [](double sum, const Kernel& kernel) { return sum + kernel.flops; });
}

double bytes(const LoweredStep& step) {
  return std::accumulate(step.kernels.begin(), step.kernels.end(), 0.0,
                         [](double sum, const Kernel& kernel) { return sum + kernel.bytes; });
}

TEST(CudaLowering, FusionSavesBytesAndNoArithmetic) {
  const Graph graph = resnet("resnet50", 224, 1000);
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
  const Graph graph = resnet("resnet50", 64, 10);
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

TEST(CudaLowering, TensorsAliveTogetherLieApart) {
  const Graph graph = resnet("resnet50", 64, 10);
  for (const Precision precision : {Precision::fp16, Precision::fp32}) {
    const ProgramOptions options = options_of(precision);
    const LoweredStep step =
        lowered(graph, options,
                precision == Precision::fp16 ? all_fused(graph, options) : LoweringChoices());
    // Every tensor has room of its own from the first kernel that has it as an operand to the last.
    std::map<const Tensor*, std::pair<size_t, size_t>> uses;
    for (size_t k = 0; k < step.kernels.size(); ++k) {
      for (const Tensor* operand : step.kernels[k].operands) {
        uses.try_emplace(operand, k, k).first->second.second = k;
      }
    }
    EXPECT_EQ(uses.size(), step.tensors.size());
    for (size_t a = 0; a < step.tensors.size(); ++a) {
      for (size_t b = a + 1; b < step.tensors.size(); ++b) {
        const auto [first_a, last_a] = uses.at(&step.tensors[a]);
        const auto [first_b, last_b] = uses.at(&step.tensors[b]);
        if (last_a < first_b || last_b < first_a) continue;
        const int64_t at_a = step.memory.offsets[a], at_b = step.memory.offsets[b];
        EXPECT_TRUE(at_a + step.tensors[a].bytes <= at_b || at_b + step.tensors[b].bytes <= at_a);
      }
    }
  }
}

TEST(CudaLowering, ForwardOnlyHasNoBackwardKernels) {
  const Graph graph = resnet("resnet18", 64, 10);
  ProgramOptions options = options_of(Precision::fp16);
  options.forward_only = true;
  const LoweredStep step = lowered(graph, options, {});
  EXPECT_THAT(step.kernels, Contains(Field(&Kernel::name, HasSubstr("layer4.1.conv2"))));
  for (const Kernel& kernel : step.kernels) {
    EXPECT_STRNE(kernel.phase, "backward") << kernel.name;
  }
}

TEST(CudaStem, FormsPlaceEveryWeightOnce) {
  const Graph graph = resnet("resnet50", 224, 1000);
  const Node& conv = graph.node(1);
  for (const StemForm form : {StemForm::pad_to_4, StemForm::pad_to_8, StemForm::space_to_depth}) {
    std::vector<int64_t> places = stem_weight_places(form, conv, graph.image());
    EXPECT_EQ(places.size(), 64u * 3 * 7 * 7);
    const ConvolutionShape shape = stem_shape(form, conv, graph.image(), 1);
    std::sort(places.begin(), places.end());
    EXPECT_EQ(std::adjacent_find(places.begin(), places.end()), places.end()) << to_string(form);
    EXPECT_GE(places.front(), 0);
    EXPECT_LT(places.back(), shape.weight_elements());
  }
}

TEST(CudaStem, SpaceToDepthIsFor16Bits) {
  const Graph graph = resnet("resnet50", 224, 1000);
  const auto forms = [&](Precision precision) {
    return stem_forms(graph.node(1), graph.image(), precision);
  };
  EXPECT_THAT(forms(Precision::fp16), Contains(StemForm::space_to_depth));
  EXPECT_THAT(forms(Precision::fp32), Not(Contains(StemForm::space_to_depth)));
}

TEST(CudaFlatLayout, HoldsEveryParameterOnceLastLayerFirst) {
  const Graph graph = resnet("resnet50", 224, 1000);
  const FlatLayout layout = flat_layout(graph, StemForm::pad_to_4);
  ASSERT_EQ(layout.slices.size(), graph.parameters().size());
  std::map<int64_t, int64_t> elements_at;
  int64_t elements = 0;
  for (const ParameterSlice& slice : layout.slices) {
    EXPECT_TRUE(elements_at.emplace(slice.offset, slice.elements).second) << slice.offset;
    elements += slice.elements;
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

}  // namespace
}  // namespace nearmetal
