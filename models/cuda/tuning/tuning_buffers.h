// Operands for candidates of libraries: one convolution, product or attention alone.
#pragma once

#include <vector>

#include "models/cuda/device/check.h"
#include "models/cuda/libraries/convolution.h"

namespace nearmetal::cuda {

/// Normally distributed.
DeviceMemory random_values(Precision precision, int64_t elements, uint64_t seed,
                           cudaStream_t stream);

/// Operands as large as the largest problem, filled with random values, and room for results.
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

}  // namespace nearmetal::cuda
