// The stem after its convolution: batch norm, ReLU and 3x3 max pooling of stride 2, both
// directions. The normalised tensor, four times the pooled one, is never stored.
//
// Bytes per pooled element of E bytes, whose copy is the floor. Forward: reads 4 E of x, writes E
// of y, E of the winning x and 1 of its place. Backward: the sums are those of a batch norm over
// the pooled tensor; apply reads E of dz, 1 of the place and 4 E of x, and writes 4 E of dx.
#pragma once

#include "models/cuda/kernels/batch_norm.h"
#include "models/shapes.h"

namespace nearmetal::cuda {

inline constexpr Window stem_pool_window{3, 2, 1};

struct PoolShape {
  int64_t batch = 0;
  int channels = 0;
  int input_height = 0, input_width = 0;
  int output_height = 0, output_width = 0;
  Window window = stem_pool_window;

  constexpr Extent input() const { return {batch * input_height * input_width, channels}; }
  constexpr Extent output() const { return {batch * output_height * output_width, channels}; }
};

/// y = max over windows of relu(norm(x)). For each element of y, `winner` gets the position of its
/// maximum in the window, counted along the rows, and `winner_x` the x there: the backward sums
/// need no other x, since the gradient of all others is 0.
struct NormPoolOperands {
  const void* x = nullptr;
  NormInput norm;
  void* y = nullptr;
  uint8_t* winner = nullptr;
  void* winner_x = nullptr;
};
void launch_norm_pool(Precision precision, const PoolShape& shape, const NormPoolOperands& operands,
                      int multiprocessors, cudaStream_t stream);

/// dx, after launch_norm_backward_sums() over winner_x with the recomputed mask, which left dz.
struct PoolBackwardOperands {
  const void* dz = nullptr;  // behind the ReLU, of the pooled tensor
  const uint8_t* winner = nullptr;
  const void* x = nullptr;
  BatchNormState state;
  void* dx = nullptr;
};
void launch_pool_backward_apply(Precision precision, const PoolShape& shape,
                                const PoolBackwardOperands& operands, int multiprocessors,
                                cudaStream_t stream);

}  // namespace nearmetal::cuda
