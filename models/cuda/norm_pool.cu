#include "models/cuda/norm_pool.h"

#include "models/cuda/channel_reduction.h"
#include "models/cuda/check.h"

namespace nearmetal {
namespace {

constexpr int pool_threads = 256;

// One byte per element of a pack: 8 bytes for 16-bit types, 4 for fp32.
template <class T>
struct alignas(pack_width<T>) PackBytes {
  uint8_t values[pack_width<T>];
};

template <class T>
__global__ void __launch_bounds__(pool_threads)
    norm_pool_kernel(PoolShape shape, const T* x, BatchNormState state, T* y, uint8_t* winner) {
  constexpr int width = pack_width<T>;
  const int packs = shape.channels / width;
  const int64_t total = shape.output().elements() / width;
  const int64_t index = int64_t{blockIdx.x} * pool_threads + threadIdx.x;
  if (index >= total) return;
  const int channel = static_cast<int>(index % packs) * width;
  const int64_t pixel = index / packs;
  const int column = static_cast<int>(pixel % shape.output_width);
  const int row = static_cast<int>(pixel / shape.output_width % shape.output_height);
  const int64_t image = pixel / shape.output_width / shape.output_height;

  const auto multiplier = Channels<T>::load(state.multiplier + channel);
  const auto shift = Channels<T>::load(state.shift + channel);
  float best[width] = {};
  PackBytes<T> best_position;
#pragma unroll
  for (int i = 0; i < width; ++i) best_position.values[i] = no_winner;

  const int kernel = static_cast<int>(shape.window.kernel);
  const int first_row = row * static_cast<int>(shape.window.stride) -
                        static_cast<int>(shape.window.padding);
  const int first_column = column * static_cast<int>(shape.window.stride) -
                           static_cast<int>(shape.window.padding);
  for (int r = 0; r < kernel; ++r) {
    const int in_row = first_row + r;
    if (in_row < 0 || in_row >= shape.input_height) continue;
    for (int s = 0; s < kernel; ++s) {
      const int in_column = first_column + s;
      if (in_column < 0 || in_column >= shape.input_width) continue;
      const int64_t at = (image * shape.input_height + in_row) * shape.input_width + in_column;
      const Pack<T> pack = load_pack(x + at * shape.channels + channel);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float value =
            fmaf(to_float(pack.values[i]), multiplier.values[i], shift.values[i]);
        if (value > best[i]) {
          best[i] = value;
          best_position.values[i] = static_cast<uint8_t>(r * kernel + s);
        }
      }
    }
  }
  Pack<T> out;
#pragma unroll
  for (int i = 0; i < width; ++i) out.values[i] = from_float<T>(best[i]);
  store_pack(y + index * width, out);
  *reinterpret_cast<PackBytes<T>*>(winner + index * width) = best_position;
}

// dz of one pack of x: the gradients of those windows in which it won.
template <class T>
struct PoolGradient {
  static constexpr int width = pack_width<T>;
  PoolShape shape;
  const T* dy;
  const T* dy_second;
  const uint8_t* winner;

  __device__ PoolGradient(const PoolShape& shape, const PoolBackwardOperands& operands)
      : shape(shape),
        dy(static_cast<const T*>(operands.dy)),
        dy_second(static_cast<const T*>(operands.dy_second)),
        winner(operands.winner) {}

  __device__ void load(int64_t row_of_x, int channel, float (&dz)[width]) const {
#pragma unroll
    for (int i = 0; i < width; ++i) dz[i] = 0;
    // 32 bits hold the pixels of any batch; their division is far cheaper than that of 64.
    const unsigned pixel = static_cast<unsigned>(row_of_x);
    const int column = pixel % shape.input_width;
    const unsigned line = pixel / shape.input_width;
    const int row = line % shape.input_height;
    const unsigned image = line / shape.input_height;
    const int kernel = static_cast<int>(shape.window.kernel);
    const int stride = static_cast<int>(shape.window.stride);
    const int padding = static_cast<int>(shape.window.padding);
    const int first_row = max(0, (row + padding - kernel + stride) / stride);
    const int last_row = min(shape.output_height - 1, (row + padding) / stride);
    const int first_column = max(0, (column + padding - kernel + stride) / stride);
    const int last_column = min(shape.output_width - 1, (column + padding) / stride);
    for (int p = first_row; p <= last_row; ++p) {
      for (int q = first_column; q <= last_column; ++q) {
        const int position = (row + padding - p * stride) * kernel + column + padding - q * stride;
        const int64_t at =
            ((int64_t{image} * shape.output_height + p) * shape.output_width + q) *
                shape.channels + channel;
        const auto winners = *reinterpret_cast<const PackBytes<T>*>(winner + at);
        const Pack<T> first = load_pack(dy + at);
        Pack<T> second;
        if (dy_second != nullptr) second = load_pack(dy_second + at);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          float gradient = to_float(first.values[i]);
          if (dy_second != nullptr) gradient += to_float(second.values[i]);
          if (winners.values[i] == position) dz[i] += gradient;
        }
      }
    }
  }
};

template <class T>
__global__ void __launch_bounds__(reduction_threads, 3)
    pool_backward_sums_kernel(PoolShape shape, PoolBackwardOperands operands,
                              ReductionScratch scratch) {
  constexpr int width = pack_width<T>;
  const Extent extent = shape.input();
  const auto* x = static_cast<const T*>(operands.x);
  const int channel = blockIdx.x * slice_channels + threadIdx.x % slice_lanes<T> * width;
  float sums[2][width] = {};
  if (channel < extent.channels) {
    const PoolGradient<T> gradient(shape, operands);
    const auto mean = Channels<T>::load(operands.state.mean + channel);
    for (int64_t row = int64_t{blockIdx.y} * slice_rows<T> + threadIdx.x / slice_lanes<T>;
         row < extent.rows; row += int64_t{gridDim.y} * slice_rows<T>) {
      const Pack<T> pack = load_pack(x + row * extent.channels + channel);
      float dz[width];
      gradient.load(row, channel, dz);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        sums[0][i] += dz[i];
        sums[1][i] = fmaf(dz[i], to_float(pack.values[i]) - mean.values[i], sums[1][i]);
      }
    }
  }
  reduce_channels<T>(sums, extent.channels, scratch, [&](int at, const float(&totals)[2]) {
    finish_backward(operands.state, at, totals[0], totals[1], static_cast<double>(extent.rows));
  });
}

template <class T>
__global__ void __launch_bounds__(pool_threads)
    pool_backward_apply_kernel(PoolShape shape, PoolBackwardOperands operands) {
  constexpr int width = pack_width<T>;
  const int packs = shape.channels / width;
  const int64_t index = int64_t{blockIdx.x} * pool_threads + threadIdx.x;
  if (index >= shape.input().elements() / width) return;
  const int channel = static_cast<int>(index % packs) * width;
  const PoolGradient<T> gradient(shape, operands);
  const auto a = Channels<T>::load(operands.state.a + channel);
  const auto b = Channels<T>::load(operands.state.b + channel);
  const auto c = Channels<T>::load(operands.state.c + channel);
  Pack<T> pack = load_pack(static_cast<const T*>(operands.x) + index * width);
  float dz[width];
  gradient.load(index / packs, channel, dz);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float x = to_float(pack.values[i]);
    pack.values[i] =
        from_float<T>(fmaf(a.values[i], dz[i], fmaf(b.values[i], x, c.values[i])));
  }
  store_pack(static_cast<T*>(operands.dx) + index * width, pack);
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + pool_threads - 1) / pool_threads);
}

}  // namespace

void launch_norm_pool(Precision precision, const PoolShape& shape, const void* x,
                      const BatchNormState& state, void* y, uint8_t* winner,
                      cudaStream_t stream) {
  with_element_type(precision, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const unsigned blocks = blocks_for(shape.output().elements() / pack_width<T>);
    norm_pool_kernel<T><<<blocks, pool_threads, 0, stream>>>(shape, static_cast<const T*>(x),
                                                             state, static_cast<T*>(y), winner);
  });
  NM_CHECK_LAUNCH();
}

void launch_pool_backward_sums(Precision precision, const PoolShape& shape,
                               const PoolBackwardOperands& operands,
                               const ReductionScratch& scratch, cudaStream_t stream) {
  with_element_type(precision, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const dim3 grid = reduction_grid(shape.input(), slice_rows<T>, scratch.multiprocessors);
    pool_backward_sums_kernel<T><<<grid, reduction_threads, 0, stream>>>(shape, operands, scratch);
  });
  NM_CHECK_LAUNCH();
}

void launch_pool_backward_apply(Precision precision, const PoolShape& shape,
                                const PoolBackwardOperands& operands, cudaStream_t stream) {
  with_element_type(precision, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const unsigned blocks = blocks_for(shape.input().elements() / pack_width<T>);
    pool_backward_apply_kernel<T><<<blocks, pool_threads, 0, stream>>>(shape, operands);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal
