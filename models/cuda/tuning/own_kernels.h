// Kernels of our own that compete with cuDNN's, or with others of our own, as the tuner sees them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/cuda/libraries/convolution.h"
#include "models/cuda/tuning/tuning_buffers.h"

namespace nearmetal::cuda {

/// A kernel that would run beside a convolution or in its place, with operands for timing it.
struct OwnKernel {
  std::string key;
  std::function<void(const TuningBuffers&, cudaStream_t)> launch;
  /// Null where the tests of the kernel are all there is. Else the relative error of a launch onto
  /// NaN, infinite if it is more than rounding explains.
  std::function<double(const TuningBuffers&, cudaStream_t)> check;
};

/// Those that compete where this problem is part of a step.
std::vector<OwnKernel> own_kernels(const ConvolutionProblem& problem, int compute_capability_major,
                                   int multiprocessors);

/// Our sweep over the output of a forward convolution for batch statistics.
std::string statistics_sweep_key(const ConvolutionProblem& problem);
/// Our sweep that forms the gradient at a convolution's output.
std::string apply_sweep_key(const ConvolutionProblem& problem);
/// A sweep and what follows it in one kernel: backward_data and backward_weights of a pointwise
/// convolution, or backward_weights of the first one.
std::string fused_backward_key(const ConvolutionProblem& problem);
/// The first convolution forward with its sums.
std::string stem_forward_key(const ConvolutionProblem& problem);
/// Our sweep from the pooled gradient to that at the first convolution's output.
std::string pool_sweep_key(const ConvolutionProblem& problem);

}  // namespace nearmetal::cuda
