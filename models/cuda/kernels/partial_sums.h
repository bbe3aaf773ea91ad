// Adds what blocks have summed up apart, in a fixed order (device code).
#pragma once

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {

inline constexpr int partial_sums_threads = 256;
inline constexpr int partial_sums_values = 128;  // of a block of the kernel

/// gradient[place(i)] = sum of partial_sums[block][i], where place(i) >= 0. A block adds 32 x 4
/// values, each by 8 of its threads. `values` is a multiple of partial_sums_values.
template <class T, class Place>
__global__ void __launch_bounds__(partial_sums_threads)
    add_partial_sums_kernel(const float* partial_sums, int blocks, int values, Place place,
                            T* gradient) {
  constexpr int parts = partial_sums_threads / 32;
  __shared__ float4 shared[parts][32];
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  const int at = (blockIdx.x * 32 + lane) * 4;
  float4 total = {0, 0, 0, 0};
#pragma unroll 4
  for (int block = part; block < blocks; block += parts) {
    const float4 add =
        *reinterpret_cast<const float4*>(partial_sums + int64_t{block} * values + at);
    total.x += add.x;
    total.y += add.y;
    total.z += add.z;
    total.w += add.w;
  }
  shared[part][lane] = total;
  __syncthreads();
  if (threadIdx.x >= partial_sums_values) return;
  float sum = 0;
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    sum += reinterpret_cast<const float*>(&shared[p][threadIdx.x / 4])[threadIdx.x % 4];
  }
  const int destination = place(static_cast<int>(blockIdx.x) * partial_sums_values + threadIdx.x);
  if (destination >= 0) gradient[destination] = from_float<T>(sum);
}

template <class T, class Place>
void add_partial_sums(const float* partial_sums, int blocks, int values, Place place, T* gradient,
                      cudaStream_t stream) {
  add_partial_sums_kernel<<<values / partial_sums_values, partial_sums_threads, 0, stream>>>(
      partial_sums, blocks, values, place, gradient);
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
