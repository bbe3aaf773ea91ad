// The CUDA backend's plans for a step, made without a GPU.
#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <set>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/tuning/own_kernels.h"
#include "models/networks/registry.h"

namespace nearmetal::cuda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
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
      if (kernel.key == fused_backward_key(problem)) choices.fused_backward.insert(problem.key());
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

TEST(CudaLowering, TensorsAliveTogetherLieApart) {
  const Graph graph = build_network("resnet50", {64, 10});
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
  const Graph graph = build_network("resnet18", {64, 10});
  ProgramOptions options = options_of(Precision::fp16);
  options.forward_only = true;
  const LoweredStep step = lowered(graph, options, {});
  EXPECT_THAT(step.kernels, Contains(Field(&Kernel::name, HasSubstr("layer4.1.conv2"))));
  for (const Kernel& kernel : step.kernels) {
    EXPECT_NE(kernel.phase, Phase::backward) << kernel.name;
  }
}

// Keeps what it is given, and in what order.
class RecordingAllReduce : public AllReduce {
 public:
  std::string library() const override { return "record"; }
  int ranks() const override { return 2; }
  void bind(std::vector<GradientBucket> given) override { buckets = std::move(given); }
  void start(int first, int count, void*) override {
    for (int bucket = first; bucket < first + count; ++bucket) started.push_back(bucket);
  }
  void finish(void*) override { ADD_FAILURE() << "needs a device"; }
  std::vector<BucketTest> test(int) override { return {}; }

  std::vector<GradientBucket> buckets;
  std::vector<int> started;
};

class CudaExchange : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(BucketMib, CudaExchange, ::testing::Values(0, 1, 8, 1000));

TEST_P(CudaExchange, EachBucketStartsBehindTheLastKernelThatWritesIntoIt) {
  const Graph graph = build_network("resnet50", {64, 10});
  const ProgramOptions options = options_of(Precision::fp16);
  const LoweringChoices choices = all_fused(graph, options);
  const FlatLayout layout = flat_layout(graph, choices.stem);
  StepResources resources;
  std::vector<char> gradients(2 * layout.matrix_elements + 4 * layout.vector_elements);
  resources.parameters.matrix_elements = layout.matrix_elements;
  resources.parameters.vector_elements = layout.vector_elements;
  resources.parameters.matrix_gradients = gradients.data();
  resources.parameters.vector_gradients =
      reinterpret_cast<float*>(gradients.data() + 2 * layout.matrix_elements);
  LoweredStep step = lower(graph, options, choices, layout, resources);
  RecordingAllReduce all_reduce;
  insert_exchange(step, layout, options, resources, all_reduce, GetParam() << 20);

  // Together the buckets are the gradients, each once.
  const char* end = gradients.data();
  for (const GradientBucket& bucket : all_reduce.buckets) {
    EXPECT_EQ(bucket.data, end);
    end += bucket.bytes();
  }
  EXPECT_EQ(end, gradients.data() + gradients.size());
  EXPECT_EQ(all_reduce.buckets.back().type, Precision::fp32);
  EXPECT_GT(all_reduce.buckets.size(), GetParam() == 1 ? 10u : 1u);

  const auto bucket_of = [&](int parameter) {
    const char* place = gradients.data() + 2 * layout.slices[parameter].offset;
    size_t bucket = 0;
    while (static_cast<char*>(all_reduce.buckets[bucket].data) +
               all_reduce.buckets[bucket].bytes() <=
           place) {
      ++bucket;
    }
    return static_cast<int>(bucket);
  };
  std::set<int> written;
  bool finished = false;
  for (const Kernel& kernel : step.kernels) {
    const Phase phase = kernel.phase;
    if (kernel.name == "all buckets") {
      finished = true;
    } else if (phase == Phase::exchange) {
      kernel.launch(nullptr);
    } else if (kernel.gradient_of) {
      written.insert(*kernel.gradient_of);
      EXPECT_THAT(all_reduce.started, Not(Contains(bucket_of(*kernel.gradient_of)))) << kernel.name;
    }
    EXPECT_EQ(finished, phase == Phase::update || kernel.name == "all buckets") << kernel.name;
  }
  std::vector<int> in_order(all_reduce.buckets.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_EQ(all_reduce.started, in_order);
  for (size_t p = 0; p < layout.slices.size(); ++p) {
    EXPECT_EQ(written.contains(static_cast<int>(p)), layout.slices[p].is_matrix) << p;
  }
}

// Names of the kernels of the exchange with a last bucket of vectors behind one of matrices.
std::vector<std::string> exchange_kernels(Precision type, std::vector<GradientBucket>& buckets) {
  const Graph graph = build_network("resnet18", {64, 10});
  ProgramOptions options = options_of(Precision::fp16);
  options.gradient_type = type;
  const FlatLayout layout = flat_layout(graph, StemForm::pad_to_4);
  StepResources resources;
  std::vector<char> sent(2);
  if (type != Precision::fp16) resources.sent_matrices = sent.data();
  if (type != Precision::fp32) resources.sent_vectors = sent.data() + 1;
  LoweringChoices choices;
  choices.stem = StemForm::pad_to_4;
  LoweredStep step = lower(graph, options, choices, layout, resources);
  RecordingAllReduce all_reduce;
  insert_exchange(step, layout, options, resources, all_reduce, 0);
  buckets = all_reduce.buckets;
  EXPECT_EQ(buckets.at(0).data, resources.sent_matrices);
  EXPECT_EQ(buckets.at(1).data, resources.sent_vectors);
  std::vector<std::string> names;
  for (const Kernel& kernel : step.kernels) {
    if (kernel.phase == Phase::exchange) names.push_back(kernel.name);
  }
  return names;
}

TEST(CudaConversion, WhatHasAnotherTypeIsConvertedBeforeAndAfterItsSum) {
  std::vector<GradientBucket> buckets;
  EXPECT_THAT(exchange_kernels(Precision::fp32, buckets),
              ElementsAre("bucket 0 from fp16 to fp32", "bucket 0", "all buckets",
                          "matrices from fp32 to fp16"));
  EXPECT_THAT(exchange_kernels(Precision::fp16, buckets),
              ElementsAre("bucket 1 from fp32 to fp16", "bucket 0", "all buckets",
                          "vectors from fp16 to fp32"));
  EXPECT_THAT(
      exchange_kernels(Precision::bf16, buckets),
      ElementsAre("bucket 0 from fp16 to bf16", "bucket 1 from fp32 to bf16", "bucket 0",
                  "all buckets", "matrices from bf16 to fp16", "vectors from bf16 to fp32"));
  for (const GradientBucket& bucket : buckets) EXPECT_EQ(bucket.type, Precision::bf16);
}

TEST(CudaConversion, MemoryForConversionsIsCounted) {
  const Graph graph = build_network("resnet18", {64, 10});
  const FlatLayout layout = flat_layout(graph, StemForm::pad_to_4);
  const auto more_bytes = [&](Precision precision, Precision type) {
    ProgramOptions options = options_of(precision);
    const int64_t as_computed = PersistentMemory::bytes_needed(graph, options, layout, 132);
    options.gradient_type = type;
    return PersistentMemory::bytes_needed(graph, options, layout, 132) - as_computed;
  };
  const int64_t matrices = layout.matrix_elements, vectors = layout.vector_elements;
  EXPECT_EQ(more_bytes(Precision::fp16, Precision::fp32), 4 * matrices);
  EXPECT_EQ(more_bytes(Precision::fp16, Precision::fp16), 2 * vectors);
  EXPECT_EQ(more_bytes(Precision::fp16, Precision::bf16), 2 * (matrices + vectors));
  EXPECT_EQ(more_bytes(Precision::tf32, Precision::fp32), 0);
  EXPECT_EQ(more_bytes(Precision::tf32, Precision::fp16), 2 * (matrices + vectors));
}

TEST(CudaStem, FormsPlaceEveryWeightOnce) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const Node& conv = graph.node(1);
  for (const StemForm form : {StemForm::pad_to_4, StemForm::pad_to_8, StemForm::space_to_depth}) {
    std::vector<int64_t> places = stem_weight_places(form, graph.parameters().front());
    EXPECT_EQ(places.size(), 64u * 3 * 7 * 7);
    const ConvolutionShape shape = stem_shape(form, conv, graph.image(), 1);
    std::sort(places.begin(), places.end());
    EXPECT_EQ(std::adjacent_find(places.begin(), places.end()), places.end())
        << static_cast<int>(form);
    EXPECT_GE(places.front(), 0);
    EXPECT_LT(places.back(), shape.weight_elements());
  }
}

TEST(CudaStem, SpaceToDepthIsFor16Bits) {
  const Graph graph = build_network("resnet50", {224, 1000});
  const auto forms = [&](Precision precision) {
    return stem_forms(graph.node(1), graph.image(), precision);
  };
  EXPECT_THAT(forms(Precision::fp16), Contains(StemForm::space_to_depth));
  EXPECT_THAT(forms(Precision::fp32), Not(Contains(StemForm::space_to_depth)));
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
