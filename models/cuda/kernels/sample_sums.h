// Sums over samples, in a fixed order (device code).
#pragma once

#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {

inline constexpr int sample_sums_threads = 256;
inline constexpr int sample_sums_packs = 32;  // of a block: one for each lane of its warps

/// sums[i] over samples of values[sample][i], for the first `elements` of each of so many
/// `sample_elements`; `exact`, if not null, gets them before they are rounded. The warps of a block
/// take every eighth sample.
template <class T, class Sum>
__global__ void __launch_bounds__(sample_sums_threads)
    sum_over_samples_kernel(int64_t samples, int64_t sample_elements, const T* values,
                            int64_t elements, Sum* sums, float* exact) {
  constexpr int width = pack_width<T>, warps = sample_sums_threads / sample_sums_packs;
  __shared__ Channels<T> shared[warps][sample_sums_packs];
  const int lane = static_cast<int>(threadIdx.x) % sample_sums_packs;
  const int warp = static_cast<int>(threadIdx.x) / sample_sums_packs;
  const int64_t at = (int64_t{blockIdx.x} * sample_sums_packs + lane) * width;
  Channels<T> sum = {};
  if (at < elements) {
#pragma unroll 4
    for (int64_t sample = warp; sample < samples; sample += warps) {
      const Channels<T> add = to_floats(load_pack(values + sample * sample_elements + at));
#pragma unroll
      for (int i = 0; i < width; ++i) sum.values[i] += add.values[i];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || at >= elements) return;
  for (int w = 1; w < warps; ++w) {
#pragma unroll
    for (int i = 0; i < width; ++i) sum.values[i] += shared[w][lane].values[i];
  }
#pragma unroll
  for (int i = 0; i < width; ++i) {
    sums[at + i] = from_float<Sum>(sum.values[i]);
    if (exact != nullptr) exact[at + i] = sum.values[i];
  }
}

template <class T, class Sum>
void sum_over_samples(int64_t samples, int64_t sample_elements, const T* values, int64_t elements,
                      Sum* sums, float* exact, cudaStream_t stream) {
  const unsigned blocks = blocks_for(elements / pack_width<T>, sample_sums_packs);
  sum_over_samples_kernel<T><<<blocks, sample_sums_threads, 0, stream>>>(
      samples, sample_elements, values, elements, sums, exact);
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
