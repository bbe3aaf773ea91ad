// The first convolution of a ResNet, 7x7 of stride 2, over images of 4 stored channels, with the
// sums for the batch norm behind it.
//
// Two neighbouring pixels are 16 bytes, so that the 8 pixels from 2w - 4 on, the window's 7 and one
// before them, are 4 chunks from chunk w on: tensor cores read the windows of neighbouring results
// straight from rows of images in shared memory. With `h` x `w` results of 64 channels per image:
// 2 * (4 * 4 + 64) * h * w bytes and 2 * 64 * 7 * 32 * h * w operations. For Hopper (wgmma).
#pragma once

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/norm_pool.h"

namespace nearmetal::cuda {

struct StemShape {
  int64_t batch = 0;
  int input_height = 0, input_width = 0;  // the width is even
  int output_height = 0, output_width = 0;

  constexpr int64_t output_rows() const { return batch * output_height; }
};

inline constexpr int stem_channels = 64;  // of the result
inline constexpr int stem_stored_channels = 4;

/// Deterministic. Sums are of the rounded results.
struct StemForwardOperands {
  const void* images = nullptr;   // [batch, input_height, input_width, 4]
  const void* weights = nullptr;  // [64, 7, 7, 4]
  void* y = nullptr;              // [batch, output_height, output_width, 64]
  float* sum = nullptr;           // per channel
  float* square_sum = nullptr;
};
void launch_stem_forward(Precision precision, const StemForwardOperands& operands,
                         const StemShape& shape, const ReductionScratch& scratch,
                         cudaStream_t stream);

/// Its weight gradient together with what lies before it in the backward pass: max pooling, ReLU
/// and batch norm. Their gradient is formed on load and never stored, since images have no gradient
/// of their own. Bytes per result of the convolution, of 64 channels in 16 bits: 128 of x, 32 + 16
/// of the pooled tensor and its winners, 32 of the images; apart, 256 more.
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
