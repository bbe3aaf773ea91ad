// The weight gradient of the first convolution of a ResNet together with what lies before it in the
// backward pass: max pooling, ReLU and batch norm. Their gradient is formed on load and never
// stored, since images have no gradient of their own.
//
// Bytes per result of the convolution, of 64 channels in 16 bits: 128 of x, 32 + 16 of the pooled
// tensor and its winners, 32 of the images; apart, 256 more. For Hopper (wgmma).
#pragma once

#include "models/cuda/kernels/norm_pool.h"
#include "models/cuda/kernels/stem_forward.h"

namespace nearmetal::cuda {

int64_t stem_backward_scratch_bytes(int multiprocessors);

struct StemBackwardOperands {
  PoolBackwardOperands pool;        // without dx
  const void* images = nullptr;     // as in StemForwardOperands
  void* weight_gradient = nullptr;  // [64, 7, 7, 4]
  float* partial_sums = nullptr;    // scratch
};
/// `pool` is of the convolution's result.
void launch_stem_backward(Precision precision, const StemBackwardOperands& operands,
                          const StemShape& shape, const PoolShape& pool, int multiprocessors,
                          cudaStream_t stream);

}  // namespace nearmetal::cuda
