#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/errors.h"
#include "models/cuda/device/device.h"
#include "models/networks/registry.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Product {
  const char* name;  // as CUDA tells it
  int multiprocessors;
  // For tensor cores, by NVIDIA's white papers of the architectures: GHz, and dense operations of
  // fp16 per clock and multiprocessor.
  double clock, operations;
};
constexpr Product products[] = {
    {"Tesla T4", 40, 1.59, 1024},
    {"NVIDIA A30", 56, 1.44, 2048},
    {"NVIDIA A10", 72, 1.695, 1024},
    {"NVIDIA L4", 58, 2.04, 1024},
    {"NVIDIA L40S", 142, 2.49, 1024},
    {"NVIDIA A100-SXM4-40GB", 108, 1.41, 2048},
    {"NVIDIA A100 80GB PCIe", 108, 1.41, 2048},
    {"GRID A100-40C", 108, 1.41, 2048},
    {"NVIDIA H100 80GB HBM3", 132, 1.83, 4096},
    {"NVIDIA H100 PCIe", 114, 1.62, 4096},
    {"NVIDIA H100 NVL", 132, 1.545, 4096},
    {"NVIDIA H200", 132, 1.83, 4096},
    {"NVIDIA B200", 148, 1.86, 8192},
};

TEST(Chip, PeaksOfDataSheetsAreUnitsTimesClock) {
  for (const Product& product : products) {
    SCOPED_TRACE(product.name);
    const auto peaks = peak_rates(product.name, product.multiprocessors);
    const double expected = product.multiprocessors * product.clock * 1e9 * product.operations;
    ASSERT_TRUE(peaks.contains(Precision::fp16));
    EXPECT_NEAR(peaks.at(Precision::fp16) / expected, 1, 0.01);
    EXPECT_LT(peaks.at(Precision::fp32), peaks.at(Precision::fp16) / 3);
    const bool turing = std::string(product.name) == "Tesla T4";
    ASSERT_EQ(peaks.contains(Precision::bf16), !turing);
    ASSERT_EQ(peaks.contains(Precision::tf32), !turing);
    if (turing) continue;
    EXPECT_EQ(peaks.at(Precision::bf16), peaks.at(Precision::fp16));
    EXPECT_NEAR(peaks.at(Precision::tf32) / peaks.at(Precision::fp16), 0.5, 0.015);
  }
}

TEST(Chip, APartOfAGpuHasAPartOfItsPeak) {
  const auto whole = peak_rates("NVIDIA A100-SXM4-80GB", 108);
  const auto part = peak_rates("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 14);
  EXPECT_NEAR(part.at(Precision::fp16) / whole.at(Precision::fp16), 14.0 / 108, 1e-9);
}

TEST(Chip, OtherProductsOfAChipHaveNoKnownPeak) {
  for (const char* name : {"NVIDIA A10G", "NVIDIA H20", "NVIDIA GH200 480GB", "NVIDIA L40",
                           "NVIDIA GeForce RTX 4090", "Tesla V100-SXM2-16GB", ""}) {
    EXPECT_TRUE(peak_rates(name, 100).empty()) << name;
  }
}

TEST(Chip, TuringRefusesWhatItHasNoUnitsFor) {
  for (const Precision precision : {Precision::bf16, Precision::tf32}) {
    EXPECT_THAT([&] { require_units(precision, "Tesla T4", 75); },
                ThrowsMessage<std::invalid_argument>(
                    AllOf(HasSubstr(std::string(to_string(precision)) + " needs tensor cores"),
                          HasSubstr("Tesla T4 has compute capability 7.5: use fp16 or fp32"))));
  }
  for (const Precision precision : {Precision::fp16, Precision::fp32}) {
    EXPECT_NO_THROW(require_units(precision, "Tesla T4", 75));
  }
  for (const int capability : {80, 86, 89, 90, 100, 120}) {
    EXPECT_NO_THROW(require_units(Precision::bf16, "a later one", capability));
  }
  EXPECT_THAT([] { require_units(Precision::fp16, "Tesla V100", 70); },
              ThrowsMessage<NotSupported>(HasSubstr("Tesla V100 has compute capability 7.0")));
}

// The kinds of decisions that all problems of a network leave open.
std::set<std::string> kinds_of_decisions(int capability_major) {
  const Graph graph = build_network("resnet50", {224, 1000});
  LoweringChoices choices;
  choices.stem = StemForm::pad_to_4;
  const Ops ops = plan_ops(graph, options_of(Precision::fp16), choices, {});
  std::set<std::string> kinds;
  for (int kind = 0; kind < std::ssize(names_of(DecisionKind{})); ++kind) {
    for (const Decision& decision :
         decisions_of(static_cast<DecisionKind>(kind), ops, capability_major)) {
      kinds.insert(to_string(decision.kind));
    }
  }
  return kinds;
}

TEST(Chip, KernelsForHopperAreNoAlternativesElsewhere) {
  EXPECT_EQ(kinds_of_decisions(9).size(), names_of(DecisionKind{}).size());
  for (const int major : {7, 8, 10, 12}) {
    EXPECT_THAT(kinds_of_decisions(major), testing::ElementsAre("sweep with")) << major;
  }
}

}  // namespace
}  // namespace nearmetal::cuda
