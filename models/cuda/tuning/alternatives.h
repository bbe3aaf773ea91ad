// The ways in which a part of the passes can be computed, each another list of ops.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "models/cuda/compiler/choices.h"
#include "models/cuda/compiler/fused_op.h"
#include "models/graph.h"

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

/// The implementation of the reference, which every decision has.
inline constexpr const char* apart_implementation = "apart";
inline constexpr const char* own_implementation = "own";
inline constexpr const char* cudnn_implementation = "cudnn";

/// The decisions of this kind that these ops leave open on a chip; whether an alternative differs
/// is shown by the ops that it gives.
std::vector<Decision> decisions_of(DecisionKind kind, const Ops& ops, int compute_capability_major);

/// `choices` with this implementation; for one convolution alone where `conv` is not -1.
LoweringChoices with_choice(LoweringChoices choices, const Graph& graph, const Decision& decision,
                            const std::string& implementation, int conv = -1);

/// Some ops of the two passes.
struct OpsOfPart {
  std::vector<FusedOp> forward, backward;

  bool empty() const { return forward.empty() && backward.empty(); }
};
/// The ops that are not among `others`, by text_of().
OpsOfPart difference(const Ops& ops, const Ops& others);

}  // namespace nearmetal::cuda
