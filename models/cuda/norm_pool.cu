#include "models/cuda/channel_reduction.h"
#include "models/cuda/check.h"
#include "models/cuda/norm_pool.h"

namespace nearmetal {
namespace {

constexpr int pool_threads = 256;
constexpr int norm_pool_blocks = 2;  // at once on a multiprocessor
constexpr int pool_backward_blocks = 2;
constexpr int window = stem_pool_window.kernel;
constexpr int taps = window * window;

// One byte per element of a pack.
template <class T>
struct alignas(pack_width<T>) PackBytes {
  uint8_t values[pack_width<T>];
};

// Blocks that run at once, each with whole pixels; threads left over are idle.
struct PoolGrid {
  int packs;  // of a pixel
  int pixels_at_once;
  unsigned blocks;

  PoolGrid(const PoolShape& shape, int width, int multiprocessors, int blocks_per_multiprocessor)
      : packs(shape.channels / width), pixels_at_once(pool_threads / packs) {
    const int64_t needed = (shape.output().rows + pixels_at_once - 1) / pixels_at_once;
    blocks = static_cast<unsigned>(
        std::min<int64_t>(needed, int64_t{multiprocessors} * blocks_per_multiprocessor));
  }
};

struct PooledPixel {
  int row, column;
  int64_t image;

  __device__ PooledPixel(const PoolShape& shape, int64_t index) {
    // 32 bits hold the pixels of any batch; their division is far cheaper than that of 64.
    const auto pixel = static_cast<unsigned>(index);
    const unsigned line = pixel / shape.output_width;
    column = static_cast<int>(pixel - line * shape.output_width);
    image = line / shape.output_height;
    row = static_cast<int>(line % shape.output_height);
  }
};

// Calls body(pixel index, channel) for this thread's packs of the pooled tensor.
template <class T, class Body>
__device__ void for_each_pooled_pack(const PoolShape& shape, const PoolGrid& grid, Body body) {
  const int local = threadIdx.x / grid.packs;
  if (local >= grid.pixels_at_once) return;
  const int64_t pixels = shape.output().rows;
  for (int64_t pixel = int64_t{blockIdx.x} * grid.pixels_at_once + local; pixel < pixels;
       pixel += int64_t{gridDim.x} * grid.pixels_at_once) {
    body(pixel);
  }
}

template <class T>
__global__ void __launch_bounds__(pool_threads, norm_pool_blocks)
    norm_pool_kernel(PoolShape shape, NormPoolOperands operands, Count count, PoolGrid grid) {
  constexpr int width = pack_width<T>;
  const int channel = static_cast<int>(threadIdx.x) % grid.packs * width;
  const bool store = blockIdx.x == 0 && threadIdx.x < grid.packs;
  const NormCoefficients<T> norm(operands.norm, count, channel, store);
  const auto* x = static_cast<const T*>(operands.x);
  for_each_pooled_pack<T>(shape, grid, [&](int64_t index) {
    const PooledPixel pixel(shape, index);
    const int first_row = pixel.row * 2 - 1, first_column = pixel.column * 2 - 1;
    const int64_t corner =
        ((pixel.image * shape.input_height + first_row) * shape.input_width + first_column) *
            shape.channels +
        channel;
    Pack<T> packs[taps];
    bool inside[taps];
#pragma unroll
    for (int tap = 0; tap < taps; ++tap) {  // all loads first: none waits for another
      const int r = tap / window, s = tap % window;
      inside[tap] = first_row + r >= 0 && first_row + r < shape.input_height &&
                    first_column + s >= 0 && first_column + s < shape.input_width;
      if (inside[tap]) {
        packs[tap] = load_pack(x + corner + (r * shape.input_width + s) * shape.channels);
      }
    }
    float best[width], best_x[width];
    int best_tap[width];
#pragma unroll
    for (int i = 0; i < width; ++i) {
      best[i] = -INFINITY;
      best_x[i] = 0;
      best_tap[i] = 0;
    }
#pragma unroll
    for (int tap = 0; tap < taps; ++tap) {
      if (!inside[tap]) continue;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float value_x = to_float(packs[tap].values[i]);
        const float value = norm.apply(i, value_x);
        const bool wins = !(value <= best[i]);  // a NaN must win, so that it is seen
        best[i] = wins ? value : best[i];
        best_x[i] = wins ? value_x : best_x[i];
        best_tap[i] = wins ? tap : best_tap[i];
      }
    }
    Pack<T> y, winner_x;
    PackBytes<T> winner;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      y.values[i] = from_float<T>(best[i] <= 0 ? 0.0f : best[i]);
      winner_x.values[i] = from_float<T>(best_x[i]);
      winner.values[i] = static_cast<uint8_t>(best_tap[i]);
    }
    const int64_t at = index * shape.channels + channel;
    store_pack(static_cast<T*>(operands.y) + at, y);
    if (operands.winner == nullptr) return;
    store_pack(static_cast<T*>(operands.winner_x) + at, winner_x);
    *reinterpret_cast<PackBytes<T>*>(operands.winner + at) = winner;
  });
}

// The gradient that one pooled pack hands to the position `tap` of its window.
template <class T>
struct PooledGradient {
  float dy[pack_width<T>];
  PackBytes<T> winner;

  __device__ PooledGradient(const PoolBackwardOperands& operands, const PoolShape& shape,
                            int64_t pixel, int channel, bool inside) {
    Pack<T> first{}, second{};
    winner = {};
    if (inside) {
      const int64_t at = pixel * shape.channels + channel;
      first = load_pack(static_cast<const T*>(operands.dy) + at);
      if (operands.dy_second != nullptr) {
        second = load_pack(static_cast<const T*>(operands.dy_second) + at);
      }
      winner = *reinterpret_cast<const PackBytes<T>*>(operands.winner + at);
    }
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      dy[i] = to_float(first.values[i]) + to_float(second.values[i]);
    }
  }
  __device__ float at(int i, int tap) const { return winner.values[i] == tap ? dy[i] : 0.0f; }
};

// A thread computes the 2 x 2 pixels of x whose windows are the pooled pixel and its right, lower
// and diagonal neighbour.
template <class T>
__global__ void __launch_bounds__(pool_threads, pool_backward_blocks)
    pool_backward_apply_kernel(PoolShape shape, PoolBackwardOperands operands, PoolGrid grid) {
  constexpr int width = pack_width<T>;
  const int channel = static_cast<int>(threadIdx.x) % grid.packs * width;
  const BatchNormState& state = operands.state;
  const auto multiplier = Channels<T>::load(state.multiplier + channel);
  const auto shift = Channels<T>::load(state.shift + channel);
  const auto a = Channels<T>::load(state.a + channel);
  const auto b = Channels<T>::load(state.b + channel);
  const auto c = Channels<T>::load(state.c + channel);
  for_each_pooled_pack<T>(shape, grid, [&](int64_t index) {
    const PooledPixel pixel(shape, index);
    const bool right = pixel.column + 1 < shape.output_width;
    const bool below = pixel.row + 1 < shape.output_height;
    const int row = pixel.row * 2, column = pixel.column * 2;
    const int64_t corner =
        ((pixel.image * shape.input_height + row) * shape.input_width + column) * shape.channels +
        channel;
    Pack<T> packs[4];
    bool inside[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int r = part / 2, s = part % 2;
      inside[part] = row + r < shape.input_height && column + s < shape.input_width;
      if (inside[part]) {
        packs[part] = load_pack(static_cast<const T*>(operands.x) + corner +
                                (r * shape.input_width + s) * shape.channels);
      }
    }
    const PooledGradient<T> here(operands, shape, index, channel, true);
    const PooledGradient<T> east(operands, shape, index + 1, channel, right);
    const int64_t lower = index + shape.output_width;
    const PooledGradient<T> south(operands, shape, lower, channel, below);
    const PooledGradient<T> diagonal(operands, shape, lower + 1, channel, right && below);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      if (!inside[part]) continue;
      const int r = part / 2, s = part % 2;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        // Position of this pixel in the windows: 1 + r, 1 + s in its own, and in the next one, if
        // it reaches there, row or column 0.
        float dz = here.at(i, (1 + r) * window + 1 + s);
        if (s == 1) dz += east.at(i, (1 + r) * window);
        if (r == 1) dz += south.at(i, 1 + s);
        if (r == 1 && s == 1) dz += diagonal.at(i, 0);
        const float x = to_float(packs[part].values[i]);
        if (!(fmaf(x, multiplier.values[i], shift.values[i]) > 0)) dz = 0;  // ReLU
        packs[part].values[i] =
            from_float<T>(fmaf(a.values[i], dz, fmaf(b.values[i], x, c.values[i])));
      }
      store_pack(
          static_cast<T*>(operands.dx) + corner + (r * shape.input_width + s) * shape.channels,
          packs[part]);
    }
  });
}

}  // namespace

void launch_norm_pool(Precision precision, const PoolShape& shape, const NormPoolOperands& operands,
                      int multiprocessors, cudaStream_t stream) {
  with_element_type(precision, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const PoolGrid grid(shape, pack_width<T>, multiprocessors, norm_pool_blocks);
    norm_pool_kernel<T><<<grid.blocks, pool_threads, 0, stream>>>(shape, operands,
                                                                  Count(shape.input().rows), grid);
  });
  NM_CHECK_LAUNCH();
}

void launch_pool_backward_apply(Precision precision, const PoolShape& shape,
                                const PoolBackwardOperands& operands, int multiprocessors,
                                cudaStream_t stream) {
  with_element_type(precision, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const PoolGrid grid(shape, pack_width<T>, multiprocessors, pool_backward_blocks);
    pool_backward_apply_kernel<T><<<grid.blocks, pool_threads, 0, stream>>>(shape, operands, grid);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal
