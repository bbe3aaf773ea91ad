// Kernels of our own that compete with cuDNN's, or with others of our own, as the tuner sees them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/libraries/convolution.h"

namespace nearmetal::cuda {

/// Normally distributed.
DeviceMemory random_values(Precision precision, int64_t elements, uint64_t seed,
                           cudaStream_t stream);

/// Operands as large as the largest problem, filled with random values, and room for results. No
/// kernel writes to the operands, as the next is timed and checked on them.
class TuningBuffers {
 public:
  TuningBuffers(const std::vector<ConvolutionProblem>& problems, int compute_capability_major,
                int multiprocessors, cudaStream_t stream);

  /// The operands of a problem; the operation leaves its output in result().
  ConvolutionOperands operands(const ConvolutionProblem& problem) const;
  void* result() const { return result_.get(); }
  void* second_result() const { return second_result_.get(); }  // holds the weights; y by moments
  void* second_y() const { return second_y_.get(); }
  void* workspace() const { return workspace_.get(); }
  ReductionScratch scratch() const;
  /// The states of the batch norms behind and before a convolution, for the problem with the most
  /// channels. Kernels leave statistics and sums in them.
  BatchNormState norm() const { return norm_at(0); }
  BatchNormState norm_before() const { return norm_at(1); }

 private:
  BatchNormState norm_at(int index) const;

  DeviceMemory x_, weights_, y_, second_y_, result_, second_result_, sums_, workspace_, reduction_,
      norm_;
  int64_t channels_ = 1;
  int multiprocessors_;
};

/// A kernel that would run beside a convolution or in its place, with operands for timing it.
struct OwnKernel {
  std::string key;
  std::function<void(const TuningBuffers&, cudaStream_t)> launch;
  /// Null where the tests of the kernel are all there is. Else the relative error of a launch onto
  /// NaN, infinite if it is more than rounding explains.
  std::function<double(const TuningBuffers&, cudaStream_t)> check;
  /// Pinned plans may lack it, as those of earlier versions do: then it is no candidate.
  bool optional = false;
};

/// The kernels of ours that compete where this problem is part of a step.
std::vector<OwnKernel> own_kernels(const ConvolutionProblem& problem, int compute_capability_major,
                                   int multiprocessors);

/// Our sweep over the output of a forward convolution that this problem does along with it: for
/// batch statistics, or for bias, residual and ReLU.
std::string forward_sweep_key(const ConvolutionProblem& problem);
/// Our sweep that forms the gradient at a convolution's output.
std::string apply_sweep_key(const ConvolutionProblem& problem);
/// Our sweeps, forward and backward, of a batch norm behind this convolution whose output is summed
/// with another, but for the one that forms the gradient at the convolution's output; and the
/// forward sweep of the batch norm before the convolution, which second moments are taken with.
std::string residual_norm_key(const ConvolutionProblem& problem);
/// The kernels that take the place of these sweeps and of the forward convolution by moments of its
/// input, with both backward products where one kernel of ours computes them.
std::string moments_key(const ConvolutionProblem& problem);
/// A sweep and what follows it in one kernel: backward_data and backward_weights of a pointwise
/// convolution, or backward_weights of the first one.
std::string fused_backward_key(const ConvolutionProblem& problem);
/// The same where it adds another gradient at the convolution's input and masks both by the ReLU
/// there, and the sweep of which it takes the place.
std::string joined_backward_key(const ConvolutionProblem& problem);
std::string joined_sums_key(const ConvolutionProblem& problem);
/// The first convolution forward with its sums.
std::string stem_forward_key(const ConvolutionProblem& problem);
/// Our sweep from the pooled gradient to that at the first convolution's output.
std::string pool_sweep_key(const ConvolutionProblem& problem);

}  // namespace nearmetal::cuda
