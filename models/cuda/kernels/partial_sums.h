// Adds what blocks have summed up apart, in a fixed order (device code).
#pragma once

#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {

inline constexpr int partial_sums_threads = 256;
inline constexpr int partial_sums_values = 32;  // of a block of the kernel
inline constexpr int partial_sums_unroll = 6;   // loads of a thread on their way at once

/// The first 32 of 256 threads get the sum over the blocks of a value each, from `first` on. All
/// load 4 values of every 32nd block: a chip has so few that their loads are on their way at once.
__device__ inline float sum_of_blocks(const float* partial_sums, int blocks, int values,
                                      int first) {
  constexpr int lanes = partial_sums_values / 4, parts = partial_sums_threads / lanes;
  __shared__ float4 shared[parts][lanes];
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int part = static_cast<int>(threadIdx.x) / lanes;
  const float* from = partial_sums + first + lane * 4;
  float4 total = {0, 0, 0, 0};
  for (int turn = part; turn < blocks; turn += parts * partial_sums_unroll) {
    float4 add[partial_sums_unroll];
#pragma unroll
    for (int u = 0; u < partial_sums_unroll; ++u) {
      const int64_t block = turn + u * parts;
      add[u] = {0, 0, 0, 0};
      if (block < blocks) add[u] = *reinterpret_cast<const float4*>(from + block * values);
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
  float sum = 0;
  if (threadIdx.x < partial_sums_values) {
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      sum += reinterpret_cast<const float*>(&shared[p][threadIdx.x / 4])[threadIdx.x % 4];
    }
  }
  return sum;
}

/// gradient[place(i)] = sum of partial_sums[block][i], where place(i) >= 0. `values` is a multiple
/// of partial_sums_values.
template <class T, class Place>
__global__ void __launch_bounds__(partial_sums_threads)
    add_partial_sums_kernel(const float* partial_sums, int blocks, int values, Place place,
                            T* gradient) {
  const int first = static_cast<int>(blockIdx.x) * partial_sums_values;
  const float sum = sum_of_blocks(partial_sums, blocks, values, first);
  if (threadIdx.x >= partial_sums_values) return;
  const int destination = place(first + static_cast<int>(threadIdx.x));
  if (destination >= 0) gradient[destination] = from_float<T>(sum);
}

template <class T, class Place>
void add_partial_sums(const float* partial_sums, int blocks, int values, Place place, T* gradient,
                      cudaStream_t stream) {
  launch_kernel({dim3(values / partial_sums_values), partial_sums_threads, stream},
                add_partial_sums_kernel<T, Place>, partial_sums, blocks, values, place, gradient);
}

}  // namespace nearmetal::cuda
