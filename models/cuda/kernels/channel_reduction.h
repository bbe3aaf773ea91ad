// Deterministic sums per channel over the rows of an NHWC tensor (device code).
#pragma once

#include <cstdint>

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/pack.h"
#include "models/shapes.h"

namespace nearmetal::cuda {

// A block sums a slice of 64 channels (128 bytes of a 16-bit row) over some of the rows.
inline constexpr int slice_channels = 64;
// Few large blocks: what the last one does after all others grows with their number.
inline constexpr int reduction_threads = 512;
inline constexpr int reduction_warps = reduction_threads / 32;
inline constexpr int most_blocks_per_multiprocessor = 4;
inline constexpr int most_sums = 3;
inline constexpr int most_slices = 1024;

template <class T>
inline constexpr int slice_lanes = slice_channels / pack_width<T>;
template <class T>
inline constexpr int slice_rows = reduction_threads / slice_lanes<T>;  // at a time
// ... or, of wide rows, as much as a warp reads at once: 512 bytes.
inline constexpr int wide_slice_lanes = 32;

/// Blocks of a reduction, as many as run at once: x over the slices, y over the rows.
inline dim3 reduction_grid(Extent extent, int rows_per_tile, int multiprocessors,
                           int blocks_per_multiprocessor, int channels_per_slice = slice_channels) {
  const int slices = (extent.channels + channels_per_slice - 1) / channels_per_slice;
  const int64_t tiles = (extent.rows + rows_per_tile - 1) / rows_per_tile;
  const int chunks = max(1, multiprocessors * blocks_per_multiprocessor / slices);
  return dim3(slices, static_cast<unsigned>(min(int64_t{chunks}, tiles)));
}

/// Adds `sums` (each thread's own, for the channels of its pack) over all blocks of this channel
/// slice of `lanes` packs, in a fixed order. The last block to arrive calls finish(channel, totals)
/// once for each channel of the slice.
template <class T, int lanes = slice_lanes<T>, int Sums, class Finish>
__device__ void reduce_channels(float (&sums)[Sums][pack_width<T>], int channels,
                                const ReductionScratch& scratch, Finish finish) {
  constexpr int width = pack_width<T>;
  constexpr int channels_per_slice = lanes * width;
  constexpr int slice_values = Sums * channels_per_slice;
  __shared__ float shared[reduction_warps][slice_values];
  __shared__ bool last;

  // Threads of a warp that hold the same channels are `lanes` apart.
#pragma unroll
  for (int distance = lanes; distance < 32; distance *= 2) {
#pragma unroll
    for (int s = 0; s < Sums; ++s) {
#pragma unroll
      for (int i = 0; i < width; ++i) {
        sums[s][i] += __shfl_xor_sync(0xffffffff, sums[s][i], distance);
      }
    }
  }
  const int lane = threadIdx.x % 32;
  if (lane < lanes) {
#pragma unroll
    for (int s = 0; s < Sums; ++s) {
#pragma unroll
      for (int i = 0; i < width; ++i) {
        shared[threadIdx.x / 32][s * channels_per_slice + lane * width + i] = sums[s][i];
      }
    }
  }
  __syncthreads();

  float* slice = scratch.partial_sums + int64_t{blockIdx.x} * gridDim.y * slice_values;
  for (int value = threadIdx.x; value < slice_values; value += reduction_threads) {
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < reduction_warps; ++warp) total += shared[warp][value];
    slice[blockIdx.y * slice_values + value] = total;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    // Wraps to 0 with the last arrival, ready for the next launch.
    last = atomicInc(&scratch.arrivals[blockIdx.x], gridDim.y - 1) == gridDim.y - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();

  constexpr int columns = slice_values / 4;
  constexpr int whole_groups = reduction_threads / columns;
  constexpr int groups = whole_groups < reduction_warps ? whole_groups : reduction_warps;
  const int column = threadIdx.x % columns;
  const int group = threadIdx.x / columns;
  if (group < groups) {
    float4 total = {0, 0, 0, 0};
#pragma unroll 8
    for (unsigned chunk = group; chunk < gridDim.y; chunk += groups) {
      const float4 part =
          __ldcg(reinterpret_cast<const float4*>(slice + chunk * slice_values) + column);
      total.x += part.x;
      total.y += part.y;
      total.z += part.z;
      total.w += part.w;
    }
    reinterpret_cast<float4*>(shared[group])[column] = total;
  }
  __syncthreads();
  const int channel = blockIdx.x * channels_per_slice + threadIdx.x;
  if (threadIdx.x < channels_per_slice && channel < channels) {
    float totals[Sums] = {};
#pragma unroll
    for (int s = 0; s < Sums; ++s) {
      for (int g = 0; g < groups; ++g) {
        totals[s] += shared[g][s * channels_per_slice + threadIdx.x];
      }
    }
    finish(channel, totals);
  }
}

/// 1 / n and n / (n - 1), made once on the host: divisions in fp64 take long on the device.
struct Count {
  double inverse = 1;
  float unbiased = 1;

  explicit Count(int64_t n)
      : inverse(1.0 / static_cast<double>(n)),
        unbiased(n > 1 ? static_cast<float>(static_cast<double>(n) / static_cast<double>(n - 1))
                       : 1.0f) {}
};

/// The statistics of a channel that a batch norm has after the forward sums.
struct ChannelStatistics {
  float mean, variance, inverse_deviation, multiplier, shift;

  __device__ ChannelStatistics(float scale, float bias, double exact_mean, double exact_variance) {
    mean = static_cast<float>(exact_mean);
    variance = fmaxf(static_cast<float>(exact_variance), 0);
    inverse_deviation = rsqrtf(variance + static_cast<float>(batch_norm_epsilon));
    multiplier = scale * inverse_deviation;
    shift = fmaf(-mean, multiplier, bias);
  }
  /// In fp64, as the difference cancels.
  __device__ ChannelStatistics(float scale, float bias, float sum, float square_sum,
                               const Count& count)
      : ChannelStatistics(
            scale, bias, sum * count.inverse,
            square_sum * count.inverse - (sum * count.inverse) * (sum * count.inverse)) {}

  __device__ void store(const BatchNormState& state, int channel, const Count& count) const {
    state.mean[channel] = mean;
    state.inverse_deviation[channel] = inverse_deviation;
    state.multiplier[channel] = multiplier;
    state.shift[channel] = shift;
    const auto keep = static_cast<float>(1 - batch_norm_momentum);
    const auto take = static_cast<float>(batch_norm_momentum);
    float& running_mean = state.running_mean[channel];
    float& running_variance = state.running_variance[channel];
    const float bias = state.input_bias == nullptr ? 0.0f : state.input_bias[channel];
    running_mean = keep * running_mean + take * (mean + bias);
    running_variance = keep * running_variance + take * variance * count.unbiased;
  }
};

/// normalised = x * multiplier + shift for one channel.
struct ChannelCoefficients {
  float multiplier, shift;

  /// `store`: this thread is the one that leaves the state of this channel.
  __device__ ChannelCoefficients(const NormInput& norm, const Count& count, int channel,
                                 bool store) {
    if (norm.sum == nullptr) {
      multiplier = norm.state.multiplier[channel];
      shift = norm.state.shift[channel];
      return;
    }
    const ChannelStatistics statistics(norm.state.scale[channel], norm.state.bias[channel],
                                       norm.sum[channel], norm.square_sum[channel], count);
    multiplier = statistics.multiplier;
    shift = statistics.shift;
    if (store) statistics.store(norm.state, channel, count);
  }
};

/// normalised = x * multiplier + shift for the channels of a pack.
template <class T>
struct NormCoefficients {
  Channels<T> multiplier, shift;

  /// `store`: this thread is the one that leaves the state of these channels.
  __device__ NormCoefficients(const NormInput& norm, const Count& count, int channel, bool store) {
    if (norm.sum == nullptr) {
      multiplier = Channels<T>::load(norm.state.multiplier + channel);
      shift = Channels<T>::load(norm.state.shift + channel);
      return;
    }
    const auto sum = Channels<T>::load(norm.sum + channel);
    const auto square_sum = Channels<T>::load(norm.square_sum + channel);
    const auto scale = Channels<T>::load(norm.state.scale + channel);
    const auto bias = Channels<T>::load(norm.state.bias + channel);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      const ChannelStatistics statistics(scale.values[i], bias.values[i], sum.values[i],
                                         square_sum.values[i], count);
      multiplier.values[i] = statistics.multiplier;
      shift.values[i] = statistics.shift;
      if (store) statistics.store(norm.state, channel + i, count);
    }
  }
  __device__ float apply(int i, float x) const {
    return fmaf(x, multiplier.values[i], shift.values[i]);
  }
};

/// After the backward sums of dz and of dz * (x - mean): gradients of scale and bias, and
/// dx = multiplier * (dz - sum(dz)/n - xhat * sum(dz * xhat)/n) with xhat = (x - mean) / deviation,
/// written as a * dz + b * x + c.
__device__ inline void finish_backward(const BatchNormState& state, int channel, float dz_sum,
                                       float dz_centred_sum, const Count& count) {
  const double mean = state.mean[channel];
  const double inverse_deviation = state.inverse_deviation[channel];
  const double multiplier = state.multiplier[channel];
  const double scale_gradient = dz_centred_sum * inverse_deviation;
  const double b = -multiplier * inverse_deviation * scale_gradient * count.inverse;
  state.bias_gradient[channel] = dz_sum;
  state.scale_gradient[channel] = static_cast<float>(scale_gradient);
  state.a[channel] = static_cast<float>(multiplier);
  state.b[channel] = static_cast<float>(b);
  state.c[channel] = static_cast<float>(-multiplier * dz_sum * count.inverse - b * mean);
}

// Adds what blocks have summed up apart, in a fixed order.
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
  enqueue({dim3(values / partial_sums_values), partial_sums_threads, stream},
          add_partial_sums_kernel<T, Place>, partial_sums, blocks, values, place, gradient);
}

inline constexpr int sweep_threads = 256;
inline constexpr int sweep_blocks_per_multiprocessor = 8;

/// A block covers `lanes` packs of neighbouring channels (512 bytes of a row where the tensor is
/// that wide) and sweep_threads / lanes rows at a time, `unroll` such row groups in a tile.
struct SweepShape {
  int lanes;
  int rows_at_once;
  unsigned slices, chunks;

  SweepShape(Extent extent, int width, int unroll, int multiprocessors,
             int blocks_per_multiprocessor = sweep_blocks_per_multiprocessor) {
    const int packs = extent.channels / width;
    lanes = min(packs, 32);
    rows_at_once = sweep_threads / lanes;
    slices = static_cast<unsigned>((packs + lanes - 1) / lanes);
    const int64_t tile_rows = int64_t{rows_at_once} * unroll;
    const int64_t tiles = (extent.rows + tile_rows - 1) / tile_rows;
    const int64_t wanted =
        max(int64_t{1}, int64_t{multiprocessors} * blocks_per_multiprocessor / slices);
    chunks = static_cast<unsigned>(min(tiles, wanted));
  }
  dim3 grid() const { return dim3(slices, chunks); }
};

struct SweepPosition {
  bool active;
  int channel;  // first of this thread's pack
  int row;      // in the tile
  int rows_at_once;

  __device__ SweepPosition(const SweepShape& shape, const Extent& extent, int width) {
    const int lane = threadIdx.x % shape.lanes;
    row = threadIdx.x / shape.lanes;
    rows_at_once = shape.rows_at_once;
    channel = (blockIdx.x * shape.lanes + lane) * width;
    active = row < rows_at_once && channel < extent.channels;
  }
};

/// Calls body(offsets, count) for this thread's packs, tile by tile, from the end of the tensor to
/// its beginning: the sweep before went forwards, so that its last rows are still in L2.
template <int unroll, class Body>
__device__ void sweep_backwards(const SweepPosition& position, const Extent& extent, Body body) {
  const int64_t tile_rows = int64_t{position.rows_at_once} * unroll;
  const int64_t tiles = (extent.rows + tile_rows - 1) / tile_rows;
  for (int64_t tile = tiles - 1 - blockIdx.y; tile >= 0; tile -= gridDim.y) {
    int64_t offsets[unroll];
    int count = 0;
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int64_t row = tile * tile_rows + u * position.rows_at_once + position.row;
      offsets[u] = row * extent.channels + position.channel;
      count += row < extent.rows ? 1 : 0;
    }
    body(offsets, count);
  }
}

}  // namespace nearmetal::cuda
