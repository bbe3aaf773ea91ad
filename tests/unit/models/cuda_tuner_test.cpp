// Plans and decisions that the tuner takes over, without a GPU.
#include <gmock/gmock.h>

#include <map>
#include <stdexcept>

#include "models/cuda/tuning/decide.h"
#include "models/cuda/tuning/tuner.h"
#include "models/networks/registry.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr TuningDevice hopper_device{.compute_capability_major = hopper, .multiprocessors = 132};

// Pinned plans of a ResNet-50, of which convolutions load none.
class CudaTuner : public ::testing::Test {
 protected:
  CudaTuner() {
    for (const StemForm form : forms_of(graph_, options_.precision)) {
      LoweringChoices choices;
      choices.stem = form;
      const Ops ops = plan_ops(graph_, options_, choices, {});
      for (const ConvolutionProblem& problem : distinct_problems(ops)) {
        plans_[problem.key()] = {problem.key(), no_implementation};
      }
      for (const DecisionKind kind : {DecisionKind::stem_forward, DecisionKind::stem_backward,
                                      DecisionKind::fused_backward, DecisionKind::moments}) {
        for (const Decision& decision : decisions_of(kind, ops, hopper)) {
          plans_[decision.key()] = {decision.key(), decision.alternatives.front()};
        }
      }
    }
    plans_["form of conv1"] = {"form of conv1", "pad_to_4"};
  }

  std::vector<KernelChoice> list() const {
    std::vector<KernelChoice> all;
    for (const auto& [key, plan] : plans_) all.push_back(plan);
    return all;
  }
  LoweringChoices decided() const {
    Tuner tuner(hopper_device, list(), true);
    const LoweringChoices choices = decide(graph_, options_, tuner);
    EXPECT_THAT(tuner.used(), testing::UnorderedElementsAreArray(list()));
    return choices;
  }

  const Graph graph_ = build_network("resnet50", {224, 1000});
  const ProgramOptions options_ = options_of(Precision::fp16);
  std::map<std::string, KernelChoice> plans_;
};

TEST_F(CudaTuner, PinnedDecisionsAreReproduced) {
  const LoweringChoices choices = decided();
  EXPECT_EQ(choices.stem, StemForm::pad_to_4);
  EXPECT_TRUE(choices.own_stem_forward);
  EXPECT_TRUE(choices.own_stem_backward);
  const ConvolutionProblem narrow = last_of_block(64, 56), wide = last_of_block(128, 28);
  EXPECT_TRUE(choices.fused_backward.contains(narrow.with(ConvolutionOp::backward_data).key()));
  EXPECT_EQ(choices.input_moments.at(narrow.key()), MomentsProducts::own);
  EXPECT_EQ(choices.input_moments.at(wide.key()), MomentsProducts::cudnn);
}

TEST_F(CudaTuner, WhatIsApartStaysApart) {
  for (auto& [key, plan] : plans_) {
    if (key.starts_with("moments: ") || key.starts_with("fused backward: ")) {
      plan.implementation = apart_implementation;
    }
  }
  const LoweringChoices choices = decided();
  EXPECT_TRUE(choices.fused_backward.empty());
  EXPECT_TRUE(choices.input_moments.empty());
  EXPECT_TRUE(choices.own_stem_forward);
}

// Reports of 1.x have the times of kernels, from which decisions followed, and no decisions.
TEST_F(CudaTuner, PinnedPlansWithoutADecisionAreRefusedByItsName) {
  const std::string key =
      "fused backward: " + last_of_block(64, 56).with(ConvolutionOp::backward_data).key();
  ASSERT_EQ(plans_.erase(key), 1u);
  plans_["fused conv"] = {"fused conv", own_implementation, 1e-3, 0.0};
  EXPECT_THAT([&] { decided(); },
              ThrowsMessage<std::runtime_error>("the pinned plans have none for '" + key + "'"));
}

TEST_F(CudaTuner, PinnedDecisionsMustBeKnown) {
  plans_.at("form of conv1").implementation = "hexagonal";
  EXPECT_THAT([&] { decided(); }, ThrowsMessage<std::runtime_error>(testing::AllOf(
                                      HasSubstr("hexagonal"), HasSubstr("form of conv1"))));
}

}  // namespace
}  // namespace nearmetal::cuda
