// The kernels around the sums of gradients, planned without a GPU.
#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "models/cuda/compiler/lowering.h"
#include "models/networks/registry.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

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

}  // namespace
}  // namespace nearmetal::cuda
