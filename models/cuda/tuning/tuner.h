// Chooses a cuDNN plan for each convolution, an algorithm of cuBLASLt for each product of tokens,
// and a plan of cuDNN or a kernel of ours for each attention: by time, among those whose numbers
// are right.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/libraries/attention.h"
#include "models/cuda/libraries/convolution.h"
#include "models/cuda/libraries/handles.h"
#include "models/cuda/tuning/kernel_times.h"
#include "models/cuda/tuning/own_kernels.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// At most this many of cuDNN's plans for a problem are timed.
inline constexpr int most_candidates = 64;
/// This many of the algorithms that cuBLASLt puts first are timed (see Product::offered()).
inline constexpr int most_algorithms = 12;

/// 3 to 5 calls, fewer where one takes long.
int timed_calls(double milliseconds);

/// Where candidates run.
struct TuningDevice {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  int compute_capability_major = 0;
  int multiprocessors = 0;
};

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
  void choose(cublasLtHandle_t cublas, const std::vector<LinearProblem>& problems);
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

  /// For decisions about a step; not beyond the tuner's life.
  KernelTimes times() const { return KernelTimes(used_); }
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
  bool adopt(const std::string& key, const ConvolutionProblem* problem);
  double milliseconds(const ConvolutionPlan& plan, const ConvolutionProblem& problem,
                      const TuningBuffers& buffers, Calls calls) const;
  std::vector<Candidate> fastest_of(const std::vector<const ConvolutionPlan*>& plans,
                                    const ConvolutionProblem& problem,
                                    const TuningBuffers& buffers) const;
  void tune(const ConvolutionProblem& problem, const TuningBuffers& buffers);
  bool adopt(cublasLtHandle_t cublas, const LinearProblem& problem);
  void tune(cublasLtHandle_t cublas, const LinearProblem& problem, const TuningBuffers& buffers);
  void time_own(const OwnKernel& kernel, const TuningBuffers& buffers);
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

  cudnnHandle_t handle_;
  cudaStream_t stream_;
  Kernels kernels_;
  int compute_capability_major_;
  int multiprocessors_;
  std::map<std::string, KernelChoice> known_;
  bool pinned_;
  std::map<std::string, ConvolutionPlan> plans_;
  std::map<std::string, AttentionPlan> attention_plans_;
  AttentionChoices attention_choices_;
  std::map<std::string, KernelChoice> used_;
};

}  // namespace nearmetal::cuda
