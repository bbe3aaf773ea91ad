// The ways in which a part of the passes can be computed, each another list of ops, and the
// decision among them by the time of what would run, once its results are right.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/names.h"
#include "models/cuda/compiler/fused_op.h"
#include "models/cuda/tuning/trial.h"
#include "models/cuda/tuning/tuner.h"
#include "models/graph.h"
#include "models/program.h"

namespace nearmetal::cuda {

enum class DecisionKind {
  sweep,           // does cuDNN's convolution do what follows it: statistics, or bias, ReLU ...
  stem_forward,    // ... our kernel for the first convolution
  stem_backward,   // ... our kernel from the pooled gradient to the first weights
  fused_backward,  // ... our kernel for both products and the batch norm's gradient before them
  moments,         // ... batch norm by second moments of the convolution's input
};
constexpr auto names_of(DecisionKind) {
  return std::array{"sweep with", "stem forward", "stem backward", "fused backward", "moments"};
}

/// One choice, of all convolutions of a problem.
struct Decision {
  DecisionKind kind{};
  ConvolutionProblem problem;
  std::vector<std::string> alternatives{};  // implementations beside apart_implementation
  std::vector<int> convs{};                 // nodes

  /// "fused backward: conv backward_data fp16 ...": of its KernelChoice.
  std::string key() const { return std::string(to_string(kind)) + ": " + problem.key(); }
};

/// The decisions of this kind that these ops leave open on a chip; whether an alternative differs
/// is shown by the ops that it gives.
std::vector<Decision> decisions_of(DecisionKind kind, const Ops& ops, int compute_capability_major);

/// `choices` with this implementation; for one convolution alone where `conv` is not -1.
LoweringChoices with_choice(LoweringChoices choices, const Graph& graph, const Decision& decision,
                            const std::string& implementation, int conv = -1);

/// Sees each alternative before it is tried; a test may put a fault into its kernels.
using WatchTrial = std::function<void(const Decision&, const std::string& implementation, Trial&)>;

/// All choices of a network: plans of its convolutions, its attention, and the alternatives of its
/// ops, known ones taken over and the others timed on the tuner's device. `options`: of one
/// micro-batch.
LoweringChoices decide(const Graph& graph, const ProgramOptions& options, Tuner& tuner,
                       const WatchTrial& watch = {});

}  // namespace nearmetal::cuda
