#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/norm_pool.h"
#include "models/cuda/kernels/pool_gradient.h"

namespace nearmetal::cuda {
namespace {

constexpr int pool_threads = 256;
constexpr int norm_pool_blocks = 2;  // at once on a multiprocessor
constexpr int pool_backward_blocks = 2;
constexpr int window = stem_pool_window.kernel;
constexpr int taps = window * window;

// Blocks that run at once, each with whole pixels; threads left over are idle.
struct PoolGrid {
  int packs;  // of a pixel
  int pixels_at_once;
  unsigned blocks;

  PoolGrid(const PoolShape& shape, int width, int multiprocessors, int blocks_per_multiprocessor)
      : packs(shape.channels / width), pixels_at_once(pool_threads / packs) {
    const int64_t needed = (shape.output().rows + pixels_at_once - 1) / pixels_at_once;
    blocks =
        static_cast<unsigned>(min(needed, int64_t{multiprocessors} * blocks_per_multiprocessor));
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

// The x of a window whose normalised value is the largest, for each channel of a pack: where the
// multiplier is negative, the smallest. Two values per instruction.
template <class T>
class Winners {
 public:
  using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  static constexpr int words = 4;

  __device__ explicit Winners(const Channels<T>& multiplier) {
#pragma unroll
    for (int w = 0; w < words; ++w) {
      flip_[w] = (multiplier.values[2 * w] < 0 ? 0x8000u : 0) |
                 (multiplier.values[2 * w + 1] < 0 ? 0x80000000u : 0);
      best_[w] = std::is_same_v<T, __half> ? 0xfc00fc00u : 0xff80ff80u;  // minus infinity
    }
  }
  __device__ void compare(const Pack<T>& x) {
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const Two larger = __hmax2_nan(as_two(best_[w]), as_two(key(x, w)));
      best_[w] = reinterpret_cast<const uint32_t&>(larger);
    }
  }
  // After all comparisons, from the last tap to the first.
  __device__ void find(const Pack<T>& x, int tap) {
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const uint32_t equal = __heq2_mask(as_two(best_[w]), as_two(key(x, w)));
      taps_[w] = (equal & tap * 0x10001u) | (~equal & taps_[w]);
    }
  }
  __device__ void store(PackBytes<T>& winner) const {
#pragma unroll
    for (int w = 0; w < words; w += 2) {
      winner.bytes[w / 2] = __byte_perm(taps_[w], taps_[w + 1], 0x6420);
    }
  }
  __device__ Pack<T> x() const {
    uint4 bits{best_[0] ^ flip_[0], best_[1] ^ flip_[1], best_[2] ^ flip_[2], best_[3] ^ flip_[3]};
    return reinterpret_cast<const Pack<T>&>(bits);
  }

 private:
  __device__ static const Two& as_two(const uint32_t& bits) {
    return reinterpret_cast<const Two&>(bits);
  }
  __device__ uint32_t key(const Pack<T>& x, int w) const {
    return reinterpret_cast<const uint32_t*>(x.values)[w] ^ flip_[w];
  }

  uint32_t flip_[words], best_[words], taps_[words] = {};
};

// As above, one value at a time.
template <>
class Winners<float> {
 public:
  __device__ explicit Winners(const Channels<float>& multiplier) {
    for (int i = 0; i < 4; ++i) sign_[i] = multiplier.values[i] < 0 ? -1.0f : 1.0f;
  }
  __device__ void compare(const Pack<float>& x) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float key = x.values[i] * sign_[i];
      best_[i] = key > best_[i] || key != key ? key : best_[i];  // a NaN wins
    }
  }
  __device__ void find(const Pack<float>& x, int tap) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (x.values[i] * sign_[i] == best_[i]) tap_[i] = tap;
    }
  }
  __device__ void store(PackBytes<float>& winner) const {
    for (int i = 0; i < 4; ++i) winner.set(i, tap_[i]);
  }
  __device__ Pack<float> x() const {
    Pack<float> pack;
    for (int i = 0; i < 4; ++i) pack.values[i] = best_[i] * sign_[i];
    return pack;
  }

 private:
  float sign_[4], best_[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  int tap_[4] = {};
};

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
    Winners<T> winners(norm.multiplier);
#pragma unroll
    for (int tap = taps - 1; tap >= 0; --tap) {
      if (inside[tap]) winners.compare(packs[tap]);
    }
    PackBytes<T> winner;
#pragma unroll
    for (int tap = taps - 1; tap >= 0; --tap) {
      if (inside[tap]) winners.find(packs[tap], tap);
    }
    winners.store(winner);
    const Pack<T> winner_x = winners.x();
    Channels<T> values = to_floats(winner_x);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float value = norm.apply(i, values.values[i]);
      values.values[i] = value <= 0 ? 0.0f : value;  // a NaN must stay, so that it is seen
    }
    const Pack<T> y = from_floats<T>(values);
    const int64_t at = index * shape.channels + channel;
    store_pack(static_cast<T*>(operands.y) + at, y);
    if (operands.winner == nullptr) return;
    store_pack(static_cast<T*>(operands.winner_x) + at, winner_x);
    *reinterpret_cast<PackBytes<T>*>(operands.winner + at) = winner;
  });
}

// A thread computes the 2 x 2 pixels of x whose windows are the pooled pixel and its right, lower
// and diagonal neighbour.
template <class T>
__global__ void __launch_bounds__(pool_threads, pool_backward_blocks)
    pool_backward_apply_kernel(PoolShape shape, PoolBackwardOperands operands, PoolGrid grid) {
  constexpr int width = pack_width<T>;
  const int channel = static_cast<int>(threadIdx.x) % grid.packs * width;
  const auto a = Channels<T>::load(operands.state.a + channel);
  const auto b = Channels<T>::load(operands.state.b + channel);
  const auto c = Channels<T>::load(operands.state.c + channel);
  for_each_pooled_pack<T>(shape, grid, [&](int64_t index) {
    const PooledPixel pixel(shape, index);
    const PoolGradient<T> gradient(operands, shape, pixel.image, pixel.row, pixel.column, channel);
    Pack<T> gradients[4];
    gradient.form(a, b, c, gradients);
    T* corner = static_cast<T*>(operands.dx) +
                ((pixel.image * shape.input_height + 2 * pixel.row) * shape.input_width +
                 2 * pixel.column) *
                    shape.channels +
                channel;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      if (!gradient.inside(part)) continue;
      store_pack(corner + (part / 2 * shape.input_width + part % 2) * shape.channels,
                 gradients[part]);
    }
  });
}

}  // namespace

void launch_norm_pool(Precision precision, const PoolShape& shape, const NormPoolOperands& operands,
                      int multiprocessors, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const PoolGrid grid(shape, pack_width<T>, multiprocessors, norm_pool_blocks);
    enqueue({grid.blocks, pool_threads, stream}, norm_pool_kernel<T>, shape, operands,
            Count(shape.input().rows), grid);
  });
}

void launch_pool_backward_apply(Precision precision, const PoolShape& shape,
                                const PoolBackwardOperands& operands, int multiprocessors,
                                cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const PoolGrid grid(shape, pack_width<T>, multiprocessors, pool_backward_blocks);
    enqueue({grid.blocks, pool_threads, stream}, pool_backward_apply_kernel<T>, shape, operands,
            grid);
  });
}

}  // namespace nearmetal::cuda
