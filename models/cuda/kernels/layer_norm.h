// Layer norm over the features of each token, both directions. Warps hold tokens in registers, so
// that each tensor is read once. Sums over the tokens are deterministic.
//
// Bytes per element of E bytes, whose copy is the floor. Forward: reads E, writes E. Backward:
// reads E of x and E of dy, and E of a second one and of another where there are; writes E. The
// sums of dx over the tokens, which are the gradient of a bias before the layer norm, cost no
// bytes.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
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

inline constexpr int most_layer_norm_sums = 3;  // over the tokens, of each channel

/// dx = gradient of x + other, where `other` may be absent. The gradient of y is dy, or the sum of
/// two.
struct LayerNormBackward {
  const void* x = nullptr;
  const void* dy = nullptr;
  const void* dy_second = nullptr;  // may be absent
  const void* other = nullptr;
  const float* scale = nullptr;
  const float* statistics = nullptr;
  void* dx = nullptr;
  float* scale_gradient = nullptr;
  float* bias_gradient = nullptr;
  float* dx_sums = nullptr;       // over the tokens; null: not wanted
  float* partial_sums = nullptr;  // layer_norm_scratch_bytes()

  constexpr int sum_count() const { return dx_sums == nullptr ? 2 : 3; }
};

/// Where the sums of the channels go: into gradients that lie in the flat gradient in any order.
/// Sums of the scale lie before those of the bias, and these before those of dx, `stride` apart.
struct NormGradients {
  /// From a sum's place to that of a value, counted from the first gradient; -1: padding.
  struct Place {
    int gradients[most_layer_norm_sums];
    int channels, stride;

    __host__ __device__ int operator()(int sum) const {
      const int channel = sum % stride;
      return channel < channels ? gradients[sum / stride] + channel : -1;
    }
  };

  NormGradients(const LayerNormBackward& operands, int channels, int stride)
      : first(std::min(operands.scale_gradient, operands.bias_gradient)) {
    if (operands.dx_sums != nullptr) first = std::min(first, operands.dx_sums);
    const auto offset = [&](const float* gradient) {
      return gradient == nullptr ? 0 : static_cast<int>(gradient - first);
    };
    place = {
        {offset(operands.scale_gradient), offset(operands.bias_gradient), offset(operands.dx_sums)},
        channels,
        stride};
  }

  float* first;
  Place place;
};

int64_t layer_norm_scratch_bytes(int64_t features, int multiprocessors);
void launch_layer_norm_backward(Precision precision, const LayerNormBackward& operands,
                                Extent extent, int multiprocessors, cudaStream_t stream);

}  // namespace nearmetal::cuda
