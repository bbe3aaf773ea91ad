// Chooses a cuDNN plan for each convolution, an algorithm of cuBLASLt for each product of tokens,
// and a plan of cuDNN or a kernel of ours for each attention: by time, among those whose numbers
// are right.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/libraries/attention.h"
#include "models/cuda/libraries/convolution.h"
#include "models/cuda/libraries/handles.h"
#include "models/cuda/tuning/alternatives.h"
#include "models/cuda/tuning/trial.h"
#include "models/cuda/tuning/tuning_buffers.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// At most this many of cuDNN's plans for a problem are timed.
inline constexpr int most_candidates = 64;
/// This many of the algorithms that cuBLASLt puts first are timed (see Product::offered()).
inline constexpr int most_algorithms = 12;

inline constexpr const char* no_implementation = "none";
inline bool is_usable(const KernelChoice& choice) {
  return choice.implementation != no_implementation &&
         choice.implementation != refused_implementation;
}
/// Where nothing computes it.
KernelChoice none_for(const std::string& key);
/// The time of what is not or cannot be used.
inline constexpr double never = std::numeric_limits<double>::infinity();

/// Choices by key: those that were given, and those that were made.
class Tuner {
 public:
  /// With Kernels::cudnn, no kernel of ours competes. With `pinned`, a choice that is not among
  /// `known`, or that does not load, is a std::runtime_error; without, it is made anew.
  Tuner(const TuningDevice& device, Kernels kernels, const std::vector<KernelChoice>& known,
        bool pinned);

  /// Chooses a plan for each problem, timing candidates on random data
  /// where it must. Throws std::runtime_error if no engine computes a problem rightly; a
  /// forward_statistics problem then merely gets no plan.
  void choose(const std::vector<ConvolutionProblem>& problems);

  /// The same for products: those of cuBLASLt's algorithms that its heuristic names first are
  /// timed.
  void choose(const std::vector<LinearProblem>& problems);
  /// The name of the algorithm that was chosen.
  const std::string& algorithm(const LinearProblem& problem) const {
    return used_.at(problem.key()).implementation;
  }

  /// The same for attention, forward before backward: cuDNN's plans and our kernels are timed.
  /// Two runs of what is chosen agree in every bit.
  void choose(const std::vector<AttentionProblem>& problems);
  /// The faster of cuDNN's and ours; where some direction has neither, both are left to products.
  const AttentionChoices& attention_choices() const { return attention_choices_; }
  /// Null where the attention is not cuDNN's.
  const AttentionPlan* plan(const AttentionProblem& problem) const;

  /// Null if there is none.
  const ConvolutionPlan* plan(const ConvolutionProblem& problem) const;

  const TuningDevice& device() const { return device_; }
  /// A decision among these implementations that was made before or given, used from now on; null
  /// where there is none. Throws std::runtime_error as for plans.
  const KernelChoice* decision(const std::string& key,
                               const std::vector<std::string>& implementations);
  bool is_pinned() const { return pinned_; }
  bool is_given(const std::string& key) const { return known_.contains(key); }
  bool is_made(const std::string& key) const { return used_.contains(key); }
  void keep(const KernelChoice& choice) { used_[choice.key] = choice; }
  /// All choices so far.
  std::vector<KernelChoice> used() const;
  int64_t largest_workspace() const;

 private:
  struct Candidate {
    const ConvolutionPlan* plan;
    double milliseconds;
  };

  // Null where there is none. Throws std::runtime_error if choices are pinned.
  const KernelChoice* known_choice(const std::string& key) const;
  bool adopt(const ConvolutionProblem& problem);
  bool adopt_own(const std::string& key);  // an attention of ours
  double seconds_of(const std::string& key) const;
  double milliseconds(const ConvolutionPlan& plan, const ConvolutionProblem& problem,
                      const TuningBuffers& buffers, Calls calls) const;
  std::vector<Candidate> fastest_of(const std::vector<const ConvolutionPlan*>& plans,
                                    const ConvolutionProblem& problem,
                                    const TuningBuffers& buffers) const;
  void tune(const ConvolutionProblem& problem, const TuningBuffers& buffers);
  bool adopt(const LinearProblem& problem);
  void tune(const LinearProblem& problem, const TuningBuffers& buffers);
  // attention_tuner.cpp
  class AttentionBuffers;
  struct AttentionCandidate;
  bool has_own(const AttentionProblem& problem) const;
  bool adopt(const AttentionProblem& problem);
  AttentionKernel faster_attention(const AttentionProblem& problem) const;
  // `plan` is null where the kernel is ours.
  std::function<cudnnStatus_t()> launcher(const AttentionPlan* plan,
                                          const AttentionProblem& problem,
                                          const AttentionOperands& operands, void* workspace) const;
  double milliseconds(const std::function<cudnnStatus_t()>& launch, const std::string& name,
                      const std::string& key) const;
  KernelChoice best_of(std::vector<AttentionCandidate> candidates, const AttentionProblem& problem,
                       const std::string& key, const AttentionBuffers& buffers) const;
  void tune(const AttentionProblem& problem);

  TuningDevice device_;
  Kernels kernels_;
  std::map<std::string, KernelChoice> known_;
  bool pinned_;
  std::map<std::string, ConvolutionPlan> plans_;
  std::map<std::string, AttentionPlan> attention_plans_;
  AttentionChoices attention_choices_;
  std::map<std::string, KernelChoice> used_;
};

}  // namespace nearmetal::cuda
