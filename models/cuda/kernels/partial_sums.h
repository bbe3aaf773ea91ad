// Adds what blocks have summed up apart, in a fixed order (device code).
#pragma once

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {

inline constexpr int partial_sums_threads = 256;
inline constexpr int partial_sums_values = 32;  // of a block of the kernel
inline constexpr int partial_sums_unroll = 6;   // loads of a thread on their way at once

/// gradient[place(i)] = sum of partial_sums[block][i], where place(i) >= 0. A block adds 8 x 4
/// values, each by 32 of its threads: a chip has so few blocks that their loads are on their way at
/// once. `values` is a multiple of partial_sums_values.
template <class T, class Place>
__global__ void __launch_bounds__(partial_sums_threads)
    add_partial_sums_kernel(const float* partial_sums, int blocks, int values, Place place,
                            T* gradient) {
  constexpr int lanes = partial_sums_values / 4, parts = partial_sums_threads / lanes;
  __shared__ float4 shared[parts][lanes];
  const int lane = threadIdx.x % lanes, part = threadIdx.x / lanes;
  const int at = (blockIdx.x * lanes + lane) * 4;
  float4 total = {0, 0, 0, 0};
  for (int first = part; first < blocks; first += parts * partial_sums_unroll) {
    float4 add[partial_sums_unroll];
#pragma unroll
    for (int u = 0; u < partial_sums_unroll; ++u) {
      const int block = first + u * parts;
      add[u] = block < blocks
                   ? *reinterpret_cast<const float4*>(partial_sums + int64_t{block} * values + at)
                   : float4{0, 0, 0, 0};
    }
#pragma unroll
    for (int u = 0; u < partial_sums_unroll; ++u) {
      total.x += add[u].x;
      total.y += add[u].y;
      total.z += add[u].z;
      total.w += add[u].w;
    }
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
