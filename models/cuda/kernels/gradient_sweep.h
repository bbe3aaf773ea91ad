// A sweep that forms the gradient before an activation, and its sum for each channel: that of the
// bias (device code).
#pragma once

#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/channel_reduction.h"

namespace nearmetal::cuda {

/// Blocks at once on a multiprocessor: those that the registers of most sweeps allow, or of one
/// that computes much for each value as many as it names.
template <class Source>
constexpr int gradient_blocks() {
  if constexpr (requires { Source::blocks; }) return Source::blocks;
  return 1;
}
inline constexpr int blocks_with_sums = 2;  // of a multiprocessor, at once or not

template <class T>
struct ActivationOf {
  Channels<T> bias = {};
  bool relu;

  __device__ ActivationOf(const Activation& activation, int channel) : relu(activation.relu) {
    if (activation.bias != nullptr) bias = Channels<T>::load(activation.bias + channel);
  }
  __device__ float apply(int i, float x) const {
    const float value = x + bias.values[i];
    return relu && value < 0 ? 0.0f : value;  // a NaN stays
  }
};

/// `Source` loads what it needs for a pack of a row, and makes its gradient of it. Where it has
/// store(), it leaves that in its own way; where it has begin(channel), it first takes what belongs
/// to the channels. A block has a slice of `lanes` packs.
template <class T, int lanes, class Source>
__global__ void __launch_bounds__(reduction_threads, gradient_blocks<Source>())
    gradient_kernel(Source source, T* dx, float* bias_gradient, Extent extent,
                    ReductionScratch scratch) {
  constexpr int width = pack_width<T>;
  constexpr int unroll = Source::unroll;
  constexpr int rows_at_once = reduction_threads / lanes;
  constexpr int tile_rows = rows_at_once * unroll;
  const int channel = (blockIdx.x * lanes + threadIdx.x % lanes) * width;
  float sums[1][width] = {};
  if (channel < extent.channels) {
    if constexpr (requires { source.begin(channel); }) source.begin(channel);
    for (int64_t tile = blockIdx.y; tile * tile_rows < extent.rows; tile += gridDim.y) {
      const int64_t first = tile * tile_rows + threadIdx.x / lanes;
      typename Source::Loaded loaded[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int64_t row = first + u * rows_at_once;
        if (row < extent.rows) loaded[u] = source.load(row, extent.channels, channel);
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int64_t row = first + u * rows_at_once;
        if (row >= extent.rows) break;
        const Channels<T> dz = source.values(loaded[u]);
#pragma unroll
        for (int i = 0; i < width; ++i) sums[0][i] += dz.values[i];
        if (dx == nullptr) continue;
        if constexpr (requires { &Source::store; }) {
          source.store(dx, row, extent.channels, channel, loaded[u], dz);
        } else {
          store_pack(dx + row * extent.channels + channel, from_floats<T>(dz));
        }
      }
    }
  }
  if (bias_gradient == nullptr) return;
  reduce_channels<T, lanes>(sums, extent.channels, scratch, [&](int at, const float(&totals)[1]) {
    bias_gradient[at] = totals[0];
  });
}

template <class T, int lanes, class Source>
void launch_gradient_of_slices(const Source& source, void* dx, float* bias_gradient, Extent extent,
                               const ReductionScratch& scratch, cudaStream_t stream) {
  const dim3 grid =
      reduction_grid(extent, reduction_threads / lanes * Source::unroll, scratch.multiprocessors,
                     bias_gradient == nullptr ? most_blocks_per_multiprocessor : blocks_with_sums,
                     lanes * pack_width<T>);
  enqueue({grid, reduction_threads, stream}, gradient_kernel<T, lanes, Source>, source, dx,
          bias_gradient, extent, scratch);
}

template <class T, class Source>
void launch_gradient(const Source& source, void* dx, float* bias_gradient, Extent extent,
                     const ReductionScratch& scratch, cudaStream_t stream) {
  constexpr int wide_channels = wide_slice_lanes * pack_width<T>;
  const bool is_wide = extent.channels > wide_channels && extent.channels % wide_channels == 0;
  const auto launch = is_wide ? launch_gradient_of_slices<T, wide_slice_lanes, Source>
                              : launch_gradient_of_slices<T, slice_lanes<T>, Source>;
  launch(source, dx, bias_gradient, extent, scratch, stream);
}

}  // namespace nearmetal::cuda
