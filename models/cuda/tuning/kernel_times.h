// Decisions about a step by the times of kernels.
#pragma once

#include <limits>
#include <map>
#include <set>
#include <string>

#include "models/cuda/compiler/lowering.h"
#include "models/program.h"

namespace nearmetal::cuda {

/// Implementations of a KernelChoice that are no names of plans or algorithms.
inline constexpr const char* own_implementation = "own";
inline constexpr const char* no_implementation = "none";
inline bool is_usable(const KernelChoice& choice) {
  return choice.implementation != no_implementation &&
         choice.implementation != refused_implementation;
}
/// The time of what is not or cannot be used.
inline constexpr double never = std::numeric_limits<double>::infinity();

/// Choices by key, which must outlive this.
class KernelTimes {
 public:
  explicit KernelTimes(const std::map<std::string, KernelChoice>& choices) : choices_(choices) {}

  double seconds_of(const std::string& key) const;

  /// The fastest way to compute the convolution that reads the images, and what comes between it
  /// and the pooled tensor.
  struct StemChoice {
    double seconds = 0;
    bool own_forward = false, own_backward = false;
  };
  StemChoice best_stem(const LoweredStep& step) const;
  /// Keys of the problems which do a forward convolution of a step and the sweep behind it in less
  /// time than the convolution alone and our sweep.
  std::set<std::string> faster_with_sweeps(const LoweredStep& step) const;

  /// Keys of the backward_data convolutions of a step which take less time together with
  /// backward_weights and the apply sweep in our one kernel for the three. Where the step ends
  /// blocks by `moments`, the kernel may take on the sums there as well.
  std::set<std::string> faster_with_fused_backward(const LoweredStep& step,
                                                   const MomentsChoices& moments) const;

  /// The forward convolutions whose batch norm, where a sum follows it, takes less time by second
  /// moments, both passes together.
  MomentsChoices faster_by_moments(const LoweredStep& step) const;

 private:
  // The time of a forward convolution and our sweep behind it.
  double seconds_apart(const ConvolutionCall& call) const;
  // The time of a backward_data convolution and its backward_weights.
  double seconds_of_products(const ConvolutionProblem& data) const;

  const std::map<std::string, KernelChoice>& choices_;
};

}  // namespace nearmetal::cuda
