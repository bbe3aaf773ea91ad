// A convolution, and what is computed along with it, as a graph of cuDNN's operations.
#pragma once

#include "models/cuda/libraries/convolution.h"

namespace nearmetal::cuda {

/// Unique ids of the tensors of a convolution's graph.
enum TensorId : int64_t {
  x_id = 1,
  weights_id,
  y_id,
  sum_id,
  square_sum_id,
  bias_id,
  residual_id,
  // Never in memory:
  product_id,
  summed_id,
  biased_id
};

Descriptor operation_graph(const PlanDevice& device, const ConvolutionProblem& problem);

}  // namespace nearmetal::cuda
