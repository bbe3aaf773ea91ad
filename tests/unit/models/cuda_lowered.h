// Steps of the CUDA backend, planned without a GPU.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/compiler/planner.h"
#include "models/cuda/tuning/decide.h"

namespace nearmetal::cuda {

inline constexpr int hopper = 9;  // the major number of its compute capability

/// The options of a batch of 4.
inline ProgramOptions options_of(Precision precision) {
  ProgramOptions options;
  options.precision = precision;
  options.batch_size = 4;
  return options;
}

inline LoweredStep lowered(const Graph& graph, const ProgramOptions& options,
                           const LoweringChoices& choices) {
  static StepResources resources;
  static std::map<StemForm, FlatLayout> layouts;
  const FlatLayout& layout =
      layouts.insert_or_assign(choices.stem, flat_layout(graph, choices.stem)).first->second;
  return lower(graph, options, choices, layout, resources);
}

inline LoweringChoices with_fused_attention(const Graph& graph, const ProgramOptions& options) {
  LoweringChoices choices;
  for (const AttentionProblem& problem : distinct_attention(graph, options)) {
    choices.fused_attention.insert(problem.key());
  }
  return choices;
}

/// Every fusion that there is, wherever it fits.
inline LoweringChoices all_fused(const Graph& graph, const ProgramOptions& options) {
  LoweringChoices choices = with_fused_attention(graph, options);
  choices.stem = StemForm::pad_to_4;
  choices.own_stem_forward = choices.own_stem_backward = true;
  const Ops ops = plan_ops(graph, options, choices, {});
  for (const Decision& decision : decisions_of(DecisionKind::sweep, ops, hopper)) {
    choices.fused_sweeps.insert(decision.problem.key());
  }
  for (const Decision& decision : decisions_of(DecisionKind::fused_backward, ops, hopper)) {
    choices.fused_backward.insert(decision.problem.key());
  }
  for (const Decision& decision : decisions_of(DecisionKind::moments, ops, hopper)) {
    const bool own =
        choices.fused_backward.contains(decision.problem.with(ConvolutionOp::backward_data).key());
    choices.input_moments[decision.problem.key()] =
        own ? MomentsProducts::own : MomentsProducts::cudnn;
  }
  return choices;
}

/// The same choices but for convolutions from 256 or 512 to 128 channels, each with its batch norm.
inline LoweringChoices without_fused_128(LoweringChoices choices) {
  std::erase_if(choices.fused_backward,
                [](const std::string& key) { return key.find(" w128x1x1 ") != std::string::npos; });
  return choices;
}

/// The last convolution of a bottleneck block, for options_of(Precision::fp16).
inline ConvolutionProblem last_of_block(int64_t inputs, int64_t size) {
  ConvolutionShape shape{.batch = 4, .input_channels = inputs, .output_channels = 4 * inputs};
  shape.input_height = shape.input_width = shape.output_height = shape.output_width = size;
  return {ConvolutionOp::forward, shape, Precision::fp16};
}

inline const Kernel& kernel_of(const LoweredStep& step, Phase phase, const std::string& name,
                               const std::string& implementation = "") {
  for (const Kernel& kernel : step.kernels) {
    if (kernel.phase == phase && kernel.name == name && kernel.implementation == implementation) {
      return kernel;
    }
  }
  throw std::out_of_range(name);
}

inline double flops(const LoweredStep& step) {
  return std::accumulate(step.kernels.begin(), step.kernels.end(), 0.0,
                         [](double sum, const Kernel& kernel) { return sum + kernel.flops; });
}

}  // namespace nearmetal::cuda
