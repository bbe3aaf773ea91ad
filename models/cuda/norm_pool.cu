#include "models/cuda/channel_reduction.h"
#include "models/cuda/check.h"
#include "models/cuda/norm_pool.h"

namespace nearmetal {
namespace {

constexpr int pool_threads = 256;
constexpr int window = stem_pool_window.kernel;
constexpr int taps = window * window;

// One byte per element of a pack.
template <class T>
struct alignas(pack_width<T>) PackBytes {
  uint8_t values[pack_width<T>];
};

// A thread's output pixel and channels; threads beyond the tensor are not active.
struct PooledPixel {
  bool active;
  int channel, row, column;
  int64_t image;
  int64_t index;  // of the pixel

  __device__ PooledPixel(const PoolShape& shape, int width) {
    const int packs = shape.channels / width;
    const int64_t thread = int64_t{blockIdx.x} * pool_threads + threadIdx.x;
    index = thread / packs;
    active = index < shape.output().rows;
    channel = static_cast<int>(thread % packs) * width;
    column = static_cast<int>(index % shape.output_width);
    row = static_cast<int>(index / shape.output_width % shape.output_height);
    image = index / shape.output_width / shape.output_height;
  }
};

template <class T>
__global__ void __launch_bounds__(pool_threads)
    norm_pool_kernel(PoolShape shape, NormPoolOperands operands) {
  constexpr int width = pack_width<T>;
  const PooledPixel pixel(shape, width);
  if (!pixel.active) return;
  const NormCoefficients<T> norm(operands.norm, pixel.channel,
                                 blockIdx.x == 0 && threadIdx.x < shape.channels / width);
  const auto* x = static_cast<const T*>(operands.x);
  const int first_row = pixel.row * 2 - 1, first_column = pixel.column * 2 - 1;
  const int64_t corner =
      ((pixel.image * shape.input_height + first_row) * shape.input_width + first_column) *
          shape.channels +
      pixel.channel;
  Pack<T> packs[taps];
  bool inside[taps];
#pragma unroll
  for (int tap = 0; tap < taps; ++tap) {  // all loads first: none waits for another
    const int r = tap / window, s = tap % window;
    inside[tap] = first_row + r >= 0 && first_row + r < shape.input_height &&
                  first_column + s >= 0 && first_column + s < shape.input_width;
    if (inside[tap]) {
      packs[tap] = load_pack(x + corner + (int64_t{r} * shape.input_width + s) * shape.channels);
    }
  }
  Pack<T> y, winner_x;
  PackBytes<T> winner;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    float best = -INFINITY;
#pragma unroll
    for (int tap = 0; tap < taps; ++tap) {
      const float value = norm.apply(i, to_float(packs[tap].values[i]));
      // Not "value > best": a NaN must win, so that it is seen.
      if (inside[tap] && !(value <= best)) {
        best = value;
        winner.values[i] = static_cast<uint8_t>(tap);
        winner_x.values[i] = packs[tap].values[i];
      }
    }
    y.values[i] = from_float<T>(best > 0 || isnan(best) ? best : 0.0f);
  }
  const int64_t at = pixel.index * shape.channels + pixel.channel;
  store_pack(static_cast<T*>(operands.y) + at, y);
  if (operands.winner == nullptr) return;
  store_pack(static_cast<T*>(operands.winner_x) + at, winner_x);
  *reinterpret_cast<PackBytes<T>*>(operands.winner + at) = winner;
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

// A thread computes the 2 x 2 pixels of x whose windows are (row, column) and its right, lower and
// diagonal neighbour.
template <class T>
__global__ void __launch_bounds__(pool_threads, 2)
    pool_backward_apply_kernel(PoolShape shape, PoolBackwardOperands operands) {
  constexpr int width = pack_width<T>;
  const PooledPixel pixel(shape, width);
  if (!pixel.active) return;
  const int channel = pixel.channel;
  const bool right = pixel.column + 1 < shape.output_width;
  const bool below = pixel.row + 1 < shape.output_height;
  const PooledGradient<T> here(operands, shape, pixel.index, channel, true);
  const PooledGradient<T> east(operands, shape, pixel.index + 1, channel, right);
  const int64_t lower = pixel.index + shape.output_width;
  const PooledGradient<T> south(operands, shape, lower, channel, below);
  const PooledGradient<T> diagonal(operands, shape, lower + 1, channel, right && below);

  const BatchNormState& state = operands.state;
  const auto multiplier = Channels<T>::load(state.multiplier + channel);
  const auto shift = Channels<T>::load(state.shift + channel);
  const auto a = Channels<T>::load(state.a + channel);
  const auto b = Channels<T>::load(state.b + channel);
  const auto c = Channels<T>::load(state.c + channel);
  const int row = pixel.row * 2, column = pixel.column * 2;
  const int64_t corner =
      ((pixel.image * shape.input_height + row) * shape.input_width + column) * shape.channels +
      channel;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int r = part / 2, s = part % 2;
    if (row + r >= shape.input_height || column + s >= shape.input_width) continue;
    const int64_t at = corner + (int64_t{r} * shape.input_width + s) * shape.channels;
    Pack<T> pack = load_pack(static_cast<const T*>(operands.x) + at);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      // Position of this pixel in the windows: 1 + r, 1 + s in its own, and in the next one, if it
      // reaches there, row or column 0.
      float dz = here.at(i, (1 + r) * window + 1 + s);
      if (s == 1) dz += east.at(i, (1 + r) * window);
      if (r == 1) dz += south.at(i, 1 + s);
      if (r == 1 && s == 1) dz += diagonal.at(i, 0);
      const float x = to_float(pack.values[i]);
      if (!(fmaf(x, multiplier.values[i], shift.values[i]) > 0)) dz = 0;  // ReLU
      pack.values[i] = from_float<T>(fmaf(a.values[i], dz, fmaf(b.values[i], x, c.values[i])));
    }
    store_pack(static_cast<T*>(operands.dx) + at, pack);
  }
}

unsigned blocks_for(const PoolShape& shape, int width) {
  const int64_t threads = shape.output().elements() / width;
  return static_cast<unsigned>((threads + pool_threads - 1) / pool_threads);
}

}  // namespace

void launch_norm_pool(Precision precision, const PoolShape& shape, const NormPoolOperands& operands,
                      cudaStream_t stream) {
  with_element_type(precision, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    norm_pool_kernel<T>
        <<<blocks_for(shape, pack_width<T>), pool_threads, 0, stream>>>(shape, operands);
  });
  NM_CHECK_LAUNCH();
}

void launch_pool_backward_apply(Precision precision, const PoolShape& shape,
                                const PoolBackwardOperands& operands, cudaStream_t stream) {
  with_element_type(precision, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    pool_backward_apply_kernel<T>
        <<<blocks_for(shape, pack_width<T>), pool_threads, 0, stream>>>(shape, operands);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal
