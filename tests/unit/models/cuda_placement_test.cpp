// Where the tensors of a step of the CUDA backend lie, planned without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "models/inference.h"
#include "models/networks/registry.h"
#include "models/pipeline_cuts.h"
#include "tests/ops/graphs.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

struct PlacedCase {
  const char* name;
  std::function<Graph()> graph;
  Kernels kernels = Kernels::fastest;
  int64_t micro_batches = 1;
  PipelinePlace pipeline{};
};

void PrintTo(const PlacedCase& tested, std::ostream* out) { *out << tested.name; }

class CudaPlacement : public ::testing::TestWithParam<PlacedCase> {};

// Where it lies: a part of another has no place of its own.
std::pair<int64_t, int64_t> place_of(const LoweredStep& step, const Tensor& tensor) {
  const Tensor& whole = tensor.whole != nullptr ? *tensor.whole : tensor;
  const auto index = static_cast<size_t>(
      std::ranges::find(step.tensors, &whole, [](const Tensor& other) { return &other; }) -
      step.tensors.begin());
  const int64_t begin = step.memory.offsets.at(index) + tensor.offset_bytes;
  EXPECT_LE(tensor.offset_bytes + tensor.bytes, whole.bytes);
  return {begin, begin + tensor.bytes};
}

bool are_parts_of_one(const Tensor& a, const Tensor& b) {
  return a.whole == &b || b.whole == &a || (a.whole != nullptr && a.whole == b.whole);
}

// Every tensor has room of its own from the first kernel that has it as an operand to the last.
void expect_room_for_each(const LoweredStep& step) {
  std::map<const Tensor*, std::pair<size_t, size_t>> uses;
  for (size_t k = 0; k < step.kernels.size(); ++k) {
    for (const Tensor* operand : step.kernels[k].operands) {
      uses.try_emplace(operand, k, k).first->second.second = k;
    }
  }
  for (const Tensor& tensor : step.tensors) {
    EXPECT_TRUE(uses.contains(&tensor) ||
                std::ranges::find(step.tensors, &tensor, &Tensor::whole) != step.tensors.end())
        << "no kernel tells that it takes it";
  }
  for (auto a = uses.begin(); a != uses.end(); ++a) {
    const auto [begin_a, end_a] = place_of(step, *a->first);
    EXPECT_LE(end_a, step.memory.total_bytes);
    for (auto b = std::next(a); b != uses.end(); ++b) {
      if (are_parts_of_one(*a->first, *b->first)) continue;
      const auto [first_a, last_a] = a->second;
      const auto [first_b, last_b] = b->second;
      if (last_a < first_b || last_b < first_a) continue;
      const auto [begin_b, end_b] = place_of(step, *b->first);
      EXPECT_TRUE(end_a <= begin_b || end_b <= begin_a);
    }
  }
}

TEST_P(CudaPlacement, TensorsAliveTogetherLieApart) {
  const Graph graph = GetParam().graph();
  for (const Precision precision : {Precision::fp16, Precision::fp32}) {
    ProgramOptions options = options_of(precision);
    options.kernels = GetParam().kernels;
    options.micro_batches = GetParam().micro_batches;
    options.pipeline = GetParam().pipeline;
    options.forward_only = !graph.is_trainable();
    const bool fused = precision == Precision::fp16 && options.kernels == Kernels::fastest;
    expect_room_for_each(
        lowered(graph, options, fused ? all_fused(graph, options) : LoweringChoices()));
  }
}

// One stage of three, cut behind layer2.0 and layer3.
Graph stage_of_resnet18(int stage) {
  const Graph graph = build_network("resnet18", {64, 10});
  return make_stage(graph, named_cuts(graph, "layer2.0,layer3", 3), stage).graph;
}

TEST(CudaStages, OneForwardOneBackwardHoldsFewerActivations) {
  const auto bytes = [](Schedule schedule, int stage, int64_t micro_batches) {
    ProgramOptions options = options_of(Precision::fp16);
    options.micro_batches = micro_batches;
    options.pipeline = {3, stage, schedule};
    const LoweredStep step = lowered(stage_of_resnet18(stage), options, {});
    return step.memory.total_bytes - (step.images == nullptr ? 0 : step.images->bytes);
  };
  const Schedule eager = Schedule::one_forward_one_backward;
  for (const int stage : {0, 1}) {
    EXPECT_GT(bytes(Schedule::gpipe, stage, 12), 2 * bytes(eager, stage, 12)) << stage;
    EXPECT_LT(bytes(eager, stage, 12), 1.05 * static_cast<double>(bytes(eager, stage, 6)));
  }
}

TEST(CudaStages, EachTransferIsFinishedOnceAfterItIsStarted) {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_forward_one_backward}) {
    for (const int stage : {0, 1, 2}) {
      ProgramOptions options = options_of(Precision::fp16);
      options.micro_batches = 4;
      options.pipeline = {3, stage, schedule};
      std::map<std::string, int> open, count;
      for (const Kernel& kernel : lowered(stage_of_resnet18(stage), options, {}).kernels) {
        const bool starts = kernel.name.starts_with("start ");
        if (!starts && !kernel.name.starts_with("finish ")) continue;
        const std::string transfer = kernel.name.substr(kernel.name.find(' ') + 1);
        count[transfer] += starts ? 1 : 0;
        open[transfer] += starts ? 1 : -1;
        EXPECT_GE(open[transfer], 0) << transfer;
      }
      EXPECT_EQ(count.size(), stage == 1 ? 4u : 2u);
      for (const auto& [transfer, left] : open) {
        EXPECT_EQ(left, 0) << transfer;
        EXPECT_EQ(count[transfer], 4) << transfer;
      }
    }
  }
}

Graph resnet50() { return build_network("resnet50", {64, 10}); }

Graph bottlenecks() {
  const Graph graph = resnet50();
  return make_stage(graph, named_cuts(graph, "layer1.0,layer2", 3), 1).graph;
}

Graph small_vit() { return small_vit_graph({3, 33, 27}, 10, 8); }

INSTANTIATE_TEST_SUITE_P(
    Step, CudaPlacement,
    ::testing::Values(
        PlacedCase{"resnet50", resnet50},
        PlacedCase{"vgg16",
                   [] {
                     return build_network("vgg16", {64, 10});
                   }},
        PlacedCase{"vgg16_bn",
                   [] {
                     return build_network("vgg16_bn", {64, 10});
                   }},
        PlacedCase{"plain",
                   [] {
                     return plain_graph({3, 12, 12});
                   }},
        PlacedCase{"tokens",
                   [] {
                     return plain_token_graph({3, 13, 18}, 8);
                   }},
        PlacedCase{"vit", small_vit},
        PlacedCase{"vit_inference", [] { return inference_graph(small_vit()); }},
        PlacedCase{"vit_cudnn_alone", small_vit, Kernels::cudnn},
        PlacedCase{"inference", [] { return inference_graph(resnet50()); }},
        PlacedCase{"cudnn_alone", resnet50, Kernels::cudnn},
        PlacedCase{"plain_cudnn_alone",
                   [] {
                     return plain_graph({3, 12, 12});
                   },
                   Kernels::cudnn},
        PlacedCase{"micro_batches", resnet50, Kernels::fastest, 3},
        PlacedCase{"first_stage",
                   [] { return stage_of_resnet18(0); },
                   Kernels::fastest,
                   3,
                   {3, 0, Schedule::gpipe}},
        PlacedCase{
            "middle_stage", [] { return stage_of_resnet18(1); }, Kernels::fastest, 3, {3, 1}},
        PlacedCase{"stage_of_bottlenecks", bottlenecks, Kernels::fastest, 3, {3, 1}},
        PlacedCase{"last_stage", [] { return stage_of_resnet18(2); }, Kernels::cudnn, 3, {3, 2}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nearmetal::cuda
