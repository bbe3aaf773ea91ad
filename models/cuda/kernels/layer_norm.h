// Layer norm over the features of each token, both directions. Warps hold tokens in registers, so
// that each tensor is read once. Sums over the tokens are deterministic.
//
// Bytes per element of E bytes, whose copy is the floor. Forward: reads E, writes E. Backward:
// reads E of x and E of dy, and E of a second one and of another where there are; writes E. The
// sums of dx over the tokens, which are the gradient of a bias before the layer norm, cost no
// bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/cuda/kernels/batch_norm.h"

namespace nearmetal::cuda {

/// The most features of a token: 8 packs of each lane, of 16 bytes each.
constexpr int64_t most_layer_norm_features(Precision precision) {
  return int64_t{8} * 32 * 16 / element_bytes(precision);
}

/// Mean and inverse deviation of each token lie behind one another.
constexpr int64_t layer_norm_statistics_bytes(int64_t tokens) {
  return 2 * tokens * static_cast<int64_t>(sizeof(float));
}

struct LayerNormForward {
  const void* x = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
  double epsilon = 0;
  void* y = nullptr;
  float* statistics = nullptr;  // null: not wanted
};
void launch_layer_norm(Precision precision, const LayerNormForward& operands, Extent extent,
                       cudaStream_t stream);

/// Sums over the tokens, for each channel, that the backward pass takes.
inline constexpr int most_layer_norm_sums = 3;  // the gradients of scale and bias, and dx

/// dx = gradient of x + other, where `other` may be absent. The gradient of y is dy, or the sum of
/// two. Each block leaves sums over its tokens.
struct LayerNormBackward {
  const void* x = nullptr;
  const void* dy = nullptr;
  const void* dy_second = nullptr;  // may be absent
  const void* other = nullptr;
  const float* scale = nullptr;
  const float* statistics = nullptr;
  void* dx = nullptr;
  bool sums_dx = false;
  float* partial_sums = nullptr;  // layer_norm_sums_bytes()

  constexpr int sum_count() const { return sums_dx ? 3 : 2; }
};
int layer_norm_backward_blocks(Precision precision, Extent extent, int multiprocessors);
int64_t layer_norm_sums_bytes(Precision precision, Extent extent, bool sums_dx,
                              int multiprocessors);
void launch_layer_norm_backward(Precision precision, const LayerNormBackward& operands,
                                Extent extent, int multiprocessors, cudaStream_t stream);

/// What the blocks of one backward pass have left, and where the totals go.
struct LayerNormSums {
  const float* partial_sums = nullptr;
  int blocks = 0;
  int channels = 0;
  float* gradients[most_layer_norm_sums] = {};  // of scale, bias, the bias before; null: not summed
};
/// Those of several layer norms: no launch each.
struct LayerNormSumsList {
  static constexpr int most = 64;
  LayerNormSums sums[most];
  int count = 0;
};
void launch_layer_norm_sums(const LayerNormSumsList& list, cudaStream_t stream);

}  // namespace nearmetal::cuda
