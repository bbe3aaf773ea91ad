// x times the standard normal distribution function of x, by erf as in torchvision and Hugging
// Face: cuBLASLt's epilogues approximate it by tanh (cuBLAS documentation, cublasLtEpilogue_t).
//
// Bytes per element of E bytes, whose copy is the floor. Forward: reads E, writes E. Backward:
// reads E of x and E of dy, writes E.
#pragma once

#include <cuda_runtime.h>

#include "models/cuda/kernels/batch_norm.h"

namespace nearmetal::cuda {

/// y = gelu(x + bias); the bias of each channel may be absent (null). `y` may be `x`.
void launch_gelu(Precision precision, const void* x, const float* bias, void* y, Extent extent,
                 int multiprocessors, cudaStream_t stream);

struct GeluGradient {
  const void* dy = nullptr;
  const void* x = nullptr;
  const float* bias = nullptr;     // as above
  void* dx = nullptr;              // may be `dy`
  float* bias_gradient = nullptr;  // null: not wanted
};
void launch_gelu_backward(Precision precision, const GeluGradient& operands, Extent extent,
                          const ReductionScratch& scratch, cudaStream_t stream);

}  // namespace nearmetal::cuda
