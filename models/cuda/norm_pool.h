// The stem after its convolution: batch norm, ReLU and max pooling, both directions. The normalised
// tensor, four times the pooled one, is never stored.
#pragma once

#include "models/cuda/batch_norm.h"
#include "models/graph.h"

namespace nearmetal {

struct PoolShape {
  int64_t batch = 0;
  int channels = 0;
  int input_height = 0, input_width = 0;
  int output_height = 0, output_width = 0;
  Window window;

  constexpr Extent input() const { return {batch * input_height * input_width, channels}; }
  constexpr Extent output() const { return {batch * output_height * output_width, channels}; }
};

/// y = max over windows of relu(norm(x)); `winner` gets one byte per element of y: the position in
/// the window, counted along its rows, or no_winner where no value is above 0. Windows have at most
/// 254 positions. The statistics must be there (launch_batch_statistics).
inline constexpr uint8_t no_winner = 255;
void launch_norm_pool(Precision precision, const PoolShape& shape, const void* x,
                      const BatchNormState& state, void* y, uint8_t* winner,
                      cudaStream_t stream);

struct PoolBackwardOperands {
  const void* dy = nullptr;
  const void* dy_second = nullptr;  // null: the pooled tensor has one consumer
  const uint8_t* winner = nullptr;
  const void* x = nullptr;
  BatchNormState state;
  void* dx = nullptr;
};
void launch_pool_backward_sums(Precision precision, const PoolShape& shape,
                               const PoolBackwardOperands& operands,
                               const ReductionScratch& scratch, cudaStream_t stream);
void launch_pool_backward_apply(Precision precision, const PoolShape& shape,
                                const PoolBackwardOperands& operands, cudaStream_t stream);

}  // namespace nearmetal
