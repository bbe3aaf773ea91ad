// Steps of the CUDA backend, planned without a GPU.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/tuning/own_kernels.h"

namespace nearmetal::cuda {

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

/// Every fusion that there is, wherever it fits.
inline LoweringChoices all_fused(const Graph& graph, const ProgramOptions& options) {
  LoweringChoices choices;
  choices.stem = StemForm::pad_to_4;
  choices.own_stem_forward = choices.own_stem_backward = choices.own_attention = true;
  for (const ConvolutionProblem& problem :
       distinct_problems(lowered(graph, options, choices), true)) {
    if (problem.op == ConvolutionOp::forward_statistics || adds_bias(problem.op)) {
      choices.fused_sweeps.insert(problem.key());
    }
    const std::vector<OwnKernel> own = own_kernels(problem, 9, 132);
    const auto has = [&](const std::string& key) {
      return std::ranges::find(own, key, &OwnKernel::key) != own.end();
    };
    const bool fused = has(fused_backward_key(problem));
    if (fused) choices.fused_backward.insert(problem.key());
    if (has(moments_key(problem))) {
      choices.input_moments[problem.with(ConvolutionOp::forward).key()] =
          fused ? MomentsProducts::own : MomentsProducts::cudnn;
    }
  }
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
