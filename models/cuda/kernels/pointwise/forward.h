// The forward pass of a 1x1 convolution of stride 1 in one kernel with what follows it: batch norm,
// residual add and ReLU. The batch norm's coefficients are known before (second_moments.h), so that
// the convolution's output is never stored. In 16 bits, on compute capability 9.0.
#pragma once

#include "models/cuda/kernels/batch_norm.h"

namespace nearmetal::cuda {

struct PointwiseForwardOperands {
  const void* x = nullptr;                   // [rows, inputs]
  const void* weights = nullptr;             // [outputs, inputs]
  BatchNormState state;                      // with multiplier and shift
  const void* residual = nullptr;            // [rows, outputs]
  const NormInput* residual_norm = nullptr;  // not null: the residual is normalised, too
  void* y = nullptr;                         // [rows, outputs]
  uint8_t* mask = nullptr;                   // as that of launch_normalise()
};

/// For the shapes of moments_fit().
void launch_pointwise_forward(Precision precision, const PointwiseForwardOperands& operands,
                              int64_t rows, int inputs, int multiprocessors, cudaStream_t stream);

}  // namespace nearmetal::cuda
