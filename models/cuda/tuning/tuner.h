// Chooses a plan of cuDNN for each convolution and attention and an algorithm of cuBLASLt for each
// product of tokens: by time, among those whose numbers are right.
#pragma once

#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/libraries/attention.h"
#include "models/cuda/libraries/convolution.h"
#include "models/cuda/libraries/handles.h"
#include "models/cuda/tuning/trial.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// At most this many of cuDNN's plans for a problem are timed.
inline constexpr int most_candidates = 64;
/// This many of the algorithms that cuBLASLt puts first are timed (see Product::offered()).
inline constexpr int most_algorithms = 12;

/// The implementation of the reference, which every decision has.
inline constexpr const char* apart_implementation = "apart";
inline constexpr const char* own_implementation = "own";
inline constexpr const char* cudnn_implementation = "cudnn";
inline constexpr const char* no_implementation = "none";
inline bool is_usable(const KernelChoice& choice) {
  return choice.implementation != no_implementation &&
         choice.implementation != refused_implementation;
}
/// Where nothing computes it.
KernelChoice none_for(const std::string& key);
/// Where a result is wrong, by an error that need not be finite.
KernelChoice refused(const std::string& key, double relative_error);
/// The time of what is not or cannot be used.
inline constexpr double never = std::numeric_limits<double>::infinity();

/// Normally distributed.
DeviceMemory random_values(Precision precision, int64_t elements, uint64_t seed,
                           cudaStream_t stream);

/// Operands for candidates of libraries: as large as the largest problem, filled with random
/// values, and room for results.
class TuningBuffers {
 public:
  TuningBuffers(const std::vector<ConvolutionProblem>& problems, cudaStream_t stream);

  /// The operands of a problem; the operation leaves its output in result().
  ConvolutionOperands operands(const ConvolutionProblem& problem) const;
  void* result() const { return result_.get(); }
  void* second_y() const { return second_y_.get(); }
  void* workspace() const { return workspace_.get(); }

 private:
  DeviceMemory x_, weights_, y_, second_y_, result_, sums_, workspace_;
};

/// Choices by key: those that were given, and those that were made.
class Tuner {
 public:
  /// With `pinned`, a choice that is not among `known`, or that does not load, is a
  /// std::runtime_error; without, it is made anew.
  Tuner(const TuningDevice& device, const std::vector<KernelChoice>& known, bool pinned);

  /// Chooses a plan for each problem, timing candidates on random data
  /// where it must. Throws std::runtime_error if no engine computes a problem rightly; a
  /// forward_statistics problem then merely gets no plan.
  void choose(const std::vector<ConvolutionProblem>& problems);

  /// The same for products: those of cuBLASLt's algorithms that its heuristic names first are
  /// timed.
  void choose(const std::vector<LinearProblem>& problems);
  const std::string& algorithm(const LinearProblem& problem) const {
    return used_.at(problem.key()).implementation;
  }

  /// The same for attention, forward before backward. Two runs of what is chosen agree in every
  /// bit.
  void choose(const std::vector<AttentionProblem>& problems);
  /// Null if there is none, and forward also where there is none backward: products are left.
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
  // Takes a known plan over.
  template <class Plan, class Problem>
  bool adopt(std::map<std::string, Plan>& plans, const Problem& problem);
  double milliseconds(const ConvolutionPlan& plan, const ConvolutionProblem& problem,
                      const TuningBuffers& buffers, Calls calls) const;
  std::vector<Candidate> fastest_of(const std::vector<const ConvolutionPlan*>& plans,
                                    const ConvolutionProblem& problem,
                                    const TuningBuffers& buffers) const;
  void tune(const ConvolutionProblem& problem, const TuningBuffers& buffers);
  bool adopt(const LinearProblem& problem);
  void tune(const LinearProblem& problem, const TuningBuffers& buffers);
  struct AttentionBuffers;
  double milliseconds(const AttentionPlan& plan, const std::string& key,
                      const Descriptor& bound) const;
  void tune(const AttentionProblem& problem);

  TuningDevice device_;
  std::map<std::string, KernelChoice> known_;
  bool pinned_;
  std::map<std::string, ConvolutionPlan> plans_;
  std::map<std::string, AttentionPlan> attention_plans_;
  std::map<std::string, KernelChoice> used_;
};

template <class Plan, class Problem>
bool Tuner::adopt(std::map<std::string, Plan>& plans, const Problem& problem) {
  const std::string key = problem.key();
  if (used_.contains(key)) return true;
  const KernelChoice* choice = known_choice(key);
  if (choice == nullptr) return false;
  if (is_usable(*choice)) {
    try {
      plans.emplace(key, named_plan(device_.handle, problem, choice->implementation));
    } catch (const std::runtime_error& error) {
      if (!pinned_) return false;
      throw std::runtime_error("the pinned plan " + choice->implementation + " for '" + key +
                               "' does not load here: " + error.what());
    }
  }
  used_[key] = *choice;
  return true;
}

}  // namespace nearmetal::cuda
