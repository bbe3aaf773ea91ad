#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/pool_gradient.h"
#include "models/cuda/kernels/stem.h"
#include "models/cuda/kernels/stem_images.h"

namespace nearmetal::cuda {
namespace {

// One warpgroup multiplies. The others form gradients, each for every third turn, so that some
// compute while others wait for their loads.
constexpr int group_threads = 128;
constexpr int formers = 3;  // warpgroups
constexpr int threads = (1 + formers) * group_threads;
constexpr int slots = 5;  // turns that are formed or multiplied at once

// A tile is one row of pooled pixels: two rows of the convolution's results.
constexpr int tile_rows = 2;
constexpr int pooled_columns = stem_tile_columns / 2;
constexpr int gradient_row_bytes = stem_tile_columns * panel_row_bytes;
constexpr int gradient_bytes = tile_rows * gradient_row_bytes;
constexpr int image_rows = stem_image_rows(tile_rows);
constexpr int image_bytes = image_rows * stem_row_bytes;
constexpr int shared_bytes =
    panel_alignment + slots * (gradient_bytes + image_bytes) + stem_overread_bytes;

constexpr int window_columns = stem_window_pixels * stem_stored_channels;
constexpr int values = stem_channels * stem_kernel * window_columns;

struct Tile {
  int64_t image;
  int pooled_row, pooled_column;

  __device__ Tile(const PoolShape& pool, int64_t index) {
    const int columns = (pool.output_width + pooled_columns - 1) / pooled_columns;
    pooled_column = static_cast<int>(index % columns) * pooled_columns;
    pooled_row = static_cast<int>(index / columns % pool.output_height);
    image = index / columns / pool.output_height;
  }
};

int64_t tile_count(const PoolShape& pool) {
  return pool.batch * pool.output_height *
         ((pool.output_width + pooled_columns - 1) / pooled_columns);
}

#ifdef NM_HAS_WGMMA

constexpr int packs = stem_channels / 8;
constexpr int slot_threads = 2 * group_threads;  // two groups meet over a slot
// Registers of a thread, together all that a multiprocessor has.
constexpr int multiplier_registers = 152;
constexpr int former_registers = 120;

// Barriers of a slot.
__device__ constexpr int full(int slot) { return 1 + slot; }
__device__ constexpr int empty(int slot) { return 1 + slots + slot; }

template <class T>
__device__ void form_gradient(unsigned char* shared, const PoolBackwardOperands& operands,
                              const PoolShape& pool, const Tile& tile, int thread) {
  const int chunk = thread % packs;
  for (int i = thread / packs; i < pooled_columns; i += group_threads / packs) {
    const int column = tile.pooled_column + i;
    const bool there = column < pool.output_width;
    const PoolGradient<T> gradient(operands, pool, tile.image, tile.pooled_row, there ? column : 0,
                                   chunk * 8);
    Pack<T> gradients[4];
    gradient.form(Channels<T>::load(operands.state.a + chunk * 8),
                  Channels<T>::load(operands.state.b + chunk * 8),
                  Channels<T>::load(operands.state.c + chunk * 8), gradients);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      if (!there || !gradient.inside(part)) gradients[part] = {};
      *reinterpret_cast<Pack<T>*>(shared + part / 2 * gradient_row_bytes +
                                  panel_offset(2 * i + part % 2, chunk)) = gradients[part];
    }
  }
}

template <class T>
__device__ void form_tiles(const StemBackwardOperands& operands, const StemShape& shape,
                           const PoolShape& pool, int64_t tiles, unsigned char* gradient_area,
                           unsigned char* image_area) {
  const int former = static_cast<int>(threadIdx.x) / group_threads - 1;
  const int thread = static_cast<int>(threadIdx.x) % group_threads;
  int turn = former;
  for (int64_t index = blockIdx.x + int64_t{former} * gridDim.x; index < tiles;
       index += formers * gridDim.x, turn += formers) {
    const int slot = turn % slots;
    if (turn >= slots) barrier_sync(empty(slot), slot_threads);
    const Tile tile(pool, index);
    copy_stem_images(image_area + slot * image_bytes, static_cast<const T*>(operands.images), shape,
                     tile.image, 2 * tile.pooled_row, 2 * tile.pooled_column, image_rows, thread,
                     group_threads);
    cp_async_commit_group();
    form_gradient<T>(gradient_area + slot * gradient_bytes, operands.pool, pool, tile, thread);
    cp_async_wait_group<0>();
    fence_async_proxy();
    barrier_arrive(full(slot), slot_threads);
  }
}

// The weight gradient, added up over this block's tiles, to partial sums [channel][filter row]
// [window column].
template <class T>
__device__ void multiply_tiles(int64_t tiles, const unsigned char* gradient_area,
                               const unsigned char* image_area, float* partial_sums) {
  float sums[stem_kernel][16] = {};
  int turn = 0;
  for (int64_t index = blockIdx.x; index < tiles; index += gridDim.x, ++turn) {
    const int slot = turn % slots;
    const unsigned char* gradient = gradient_area + slot * gradient_bytes;
    const unsigned char* images = image_area + slot * image_bytes;
    barrier_sync(full(slot), slot_threads);
    wgmma_fence();
#pragma unroll
    for (int row = 0; row < tile_rows; ++row) {
#pragma unroll
      for (int k = 0; k < stem_tile_columns / 16; ++k) {
        const uint64_t a =
            panel_operand(gradient + row * gradient_row_bytes + k * 16 * panel_row_bytes);
#pragma unroll
        for (int r = 0; r < stem_kernel; ++r) {
          wgmma_m64n32k16<T>(sums[r], a,
                             column_operand(images + (2 * row + r) * stem_row_bytes + k * 16 * 16));
        }
      }
    }
    wgmma_commit_group();
    wgmma_wait_all();
    if (index + slots * gridDim.x < tiles) barrier_arrive(empty(slot), slot_threads);
  }
  const int thread = threadIdx.x;
  const int channel = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
#pragma unroll
  for (int r = 0; r < stem_kernel; ++r) {
    use_results(sums[r]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = ((channel + half * 8) * stem_kernel + r) * window_columns + j * 8;
        *reinterpret_cast<float2*>(partial_sums + at + column) =
            make_float2(sums[r][4 * j + 2 * half], sums[r][4 * j + 2 * half + 1]);
      }
    }
  }
}

#endif  // NM_HAS_WGMMA

template <class T>
__global__ void __launch_bounds__(threads, 1)
    stem_backward_kernel(StemBackwardOperands operands, StemShape shape, PoolShape pool,
                         int64_t tiles) {
#ifdef NM_HAS_WGMMA
  extern __shared__ unsigned char unaligned[];
  unsigned char* gradient_area = aligned_for_panels(unaligned);
  unsigned char* image_area = gradient_area + slots * gradient_bytes;
  float* partial_sums = operands.partial_sums + int64_t{blockIdx.x} * values;
  if (threadIdx.x < group_threads) {
    increase_registers<multiplier_registers>();
    multiply_tiles<T>(tiles, gradient_area, image_area, partial_sums);
  } else {
    decrease_registers<former_registers>();
    form_tiles<T>(operands, shape, pool, tiles, gradient_area, image_area);
  }
#else
  __trap();
#endif
}

// The place of a partial sum in the weights; -1 for the pixel before the window.
struct WeightPlace {
  __device__ int operator()(int value) const {
    const int row = value / window_columns, column = value % window_columns / stem_stored_channels;
    if (column == 0) return -1;
    return (row * stem_kernel + column - 1) * stem_stored_channels + value % stem_stored_channels;
  }
};

}  // namespace

int64_t stem_backward_scratch_bytes(int multiprocessors) {
  return int64_t{multiprocessors} * values * static_cast<int64_t>(sizeof(float));
}

void launch_stem_backward(Precision precision, const StemBackwardOperands& operands,
                          const StemShape& shape, const PoolShape& pool, int multiprocessors,
                          cudaStream_t stream) {
  with_16_bit_type(precision, [&]<class T>() {
    enqueue({dim3(multiprocessors), threads, stream, shared_bytes}, stem_backward_kernel<T>,
            operands, shape, pool, tile_count(pool));
    add_partial_sums(operands.partial_sums, multiprocessors, values, WeightPlace(),
                     static_cast<T*>(operands.weight_gradient), stream);
  });
}

}  // namespace nearmetal::cuda
