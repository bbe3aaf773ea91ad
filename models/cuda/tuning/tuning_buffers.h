// Device memory for timing candidates: operands of any of a set of problems.
#pragma once

#include <vector>

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/libraries/convolution.h"

namespace nearmetal::cuda {

/// Operands as large as the largest problem, filled with random values, and room for a result.
class TuningBuffers {
 public:
  TuningBuffers(const std::vector<ConvolutionProblem>& problems, int multiprocessors,
                cudaStream_t stream);

  /// What the operation computes is in result().
  ConvolutionOperands operands(const ConvolutionProblem& problem) const;
  void* result() const { return result_.get(); }
  void* second_result() const { return second_result_.get(); }  // as large as the weights
  void* second_y() const { return second_y_.get(); }
  void* workspace() const { return workspace_.get(); }
  ReductionScratch scratch() const;
  /// Of the problem with the most channels.
  BatchNormState norm() const;

 private:
  DeviceMemory x_, weights_, y_, second_y_, result_, second_result_, sums_, workspace_, reduction_,
      norm_;
  int64_t channels_ = 1;
  int multiprocessors_;
};

}  // namespace nearmetal::cuda
