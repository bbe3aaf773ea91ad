// Sums and maxima over the lanes of a warp (device code).
#pragma once

namespace nearmetal::cuda {

inline constexpr int warp_lanes = 32;

/// Every lane gets the sum of all, in the same order.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = warp_lanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int distance = warp_lanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

}  // namespace nearmetal::cuda
