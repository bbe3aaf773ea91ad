#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/stem.h"
#include "models/cuda/kernels/stem_images.h"
#include "models/cuda/kernels/wgmma.h"

namespace nearmetal::cuda {
namespace {

constexpr int groups = 3;  // warpgroups
constexpr int group_threads = 128;
constexpr int threads = groups * group_threads;
constexpr int tile_rows = 14;  // of results
constexpr int image_rows = stem_image_rows(tile_rows);
constexpr int image_bytes = image_rows * stem_row_bytes;
constexpr int staging_bytes = stem_tile_columns * panel_row_bytes;
constexpr int shared_bytes =
    panel_alignment + groups * staging_bytes + 2 * image_bytes + stem_overread_bytes;

// Tiles in the order in which the blocks take them: rows of an image, then its columns.
struct Tile {
  int64_t image;
  int row, column;

  __device__ Tile(const StemShape& shape, int64_t index) {
    const int columns = (shape.output_width + stem_tile_columns - 1) / stem_tile_columns;
    const int rows = (shape.output_height + tile_rows - 1) / tile_rows;
    column = static_cast<int>(index % columns) * stem_tile_columns;
    row = static_cast<int>(index / columns % rows) * tile_rows;
    image = index / columns / rows;
  }
};

int64_t tile_count(const StemShape& shape) {
  const int64_t columns = (shape.output_width + stem_tile_columns - 1) / stem_tile_columns;
  const int64_t rows = (shape.output_height + tile_rows - 1) / tile_rows;
  return shape.batch * rows * columns;
}

#ifdef NM_HAS_WGMMA

constexpr int inner_steps = stem_kernel * 2;  // of 4 pixels each
constexpr int sum_count = 2 * stem_channels;

// The weights as this thread's part of the products' first operand. Of the 8 pixels of a window
// row the first has no weight.
template <class T>
__device__ void load_weights(uint32_t (&parts)[inner_steps][4], const T* weights) {
  const int thread = threadIdx.x % group_threads;
  const int channel = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int step = 0; step < inner_steps; ++step) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int inner = thread % 4 * 2 + part / 2 * 8;
      const int column = step % 2 * 4 + inner / 4 - 1;
      const int at =
          (((channel + part % 2 * 8) * stem_kernel + step / 2) * stem_kernel + column) * 4 +
          inner % 4;
      parts[step][part] = column < 0 ? 0 : *reinterpret_cast<const uint32_t*>(weights + at);
    }
  }
}

// Sums of the two channels of this thread's results: t / 4 and t / 4 + 8 of its warp's 16.
struct ChannelSums {
  float sum[2] = {}, square_sum[2] = {};
};

// One row of results: rounded, added to the sums, and turned into rows of channels in `staging`.
template <class T, bool whole>
__device__ void round_and_turn(const float (&results)[56], int columns, unsigned char* staging,
                               ChannelSums& sums) {
  const int thread = threadIdx.x % group_threads, lane = thread % 32;
  const int matrix = lane / 8;
#pragma unroll
  for (int j = 0; j < 14; j += 2) {
    uint32_t bits[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int at = 4 * (j + part / 2) + part % 2 * 2;
      bits[part] = two_rounded<T>(results[at], results[at + 1]);
      const float2 values = two_floats<T>(bits[part]);
      const int column = 8 * (j + part / 2) + lane % 4 * 2;
      const float first = whole || column < columns ? values.x : 0.0f;
      const float second = whole || column + 1 < columns ? values.y : 0.0f;
      sums.sum[part % 2] += first + second;
      float& square_sum = sums.square_sum[part % 2];
      square_sum = fmaf(first, first, fmaf(second, second, square_sum));
    }
    const int row = 8 * (j + matrix / 2) + lane % 8;
    stmatrix_x4_trans(staging + panel_offset(row, thread / 32 * 2 + matrix % 2), bits);
  }
}

// `whole`: all columns of the product are results.
template <class T, bool whole>
__device__ void finish_row(const float (&results)[56], int columns, unsigned char* staging,
                           ChannelSums& sums, T* y) {
  const int group = threadIdx.x / group_threads, thread = threadIdx.x % group_threads;
  barrier_sync(1 + group, group_threads);  // the row before has left the staging
  round_and_turn<T, whole>(results, columns, staging, sums);
  barrier_sync(1 + group, group_threads);
  constexpr int chunks = panel_row_bytes / 16;
#pragma unroll
  for (int i = 0; i < stem_tile_columns * chunks / group_threads; ++i) {
    const int column = thread / chunks + i * (group_threads / chunks), chunk = thread % chunks;
    if (!whole && column >= columns) break;
    store_pack(y + column * stem_channels + chunk * 8,
               *reinterpret_cast<const Pack<T>*>(staging + panel_offset(column, chunk)));
  }
}

// Adds the sums of all threads and blocks, in a fixed order; the last block leaves them.
__device__ void add_sums(ChannelSums& sums, const StemForwardOperands& operands,
                         const ReductionScratch& scratch) {
  __shared__ float shared[groups][sum_count];
  __shared__ bool last;
  const int thread = threadIdx.x % group_threads;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      sums.sum[half] += __shfl_xor_sync(0xffffffff, sums.sum[half], distance);
      sums.square_sum[half] += __shfl_xor_sync(0xffffffff, sums.square_sum[half], distance);
    }
    if (thread % 4 != 0) continue;
    const int channel = thread / 32 * 16 + thread % 32 / 4 + half * 8;
    shared[threadIdx.x / group_threads][channel] = sums.sum[half];
    shared[threadIdx.x / group_threads][stem_channels + channel] = sums.square_sum[half];
  }
  __syncthreads();
  if (threadIdx.x < sum_count) {
    float total = 0;
    for (int group = 0; group < groups; ++group) total += shared[group][threadIdx.x];
    scratch.partial_sums[blockIdx.x * sum_count + threadIdx.x] = total;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(scratch.arrivals, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last || threadIdx.x >= sum_count) return;
  __threadfence();
  float total = 0;
#pragma unroll 8
  for (unsigned block = 0; block < gridDim.x; ++block) {
    total += __ldcg(scratch.partial_sums + block * sum_count + threadIdx.x);
  }
  const int channel = static_cast<int>(threadIdx.x) % stem_channels;
  (threadIdx.x < stem_channels ? operands.sum : operands.square_sum)[channel] = total;
}

#endif  // NM_HAS_WGMMA

// One block on each multiprocessor. Its warpgroups take turns with the rows of a tile while the
// next tile's images arrive.
template <class T>
__global__ void __launch_bounds__(threads, 1)
    stem_forward_kernel(StemForwardOperands operands, StemShape shape, int64_t tiles,
                        ReductionScratch scratch) {
#ifdef NM_HAS_WGMMA
  extern __shared__ unsigned char unaligned[];
  unsigned char* staging_area = aligned_for_panels(unaligned);
  unsigned char* image_area = staging_area + groups * staging_bytes;
  const int group = threadIdx.x / group_threads;
  unsigned char* staging = staging_area + group * staging_bytes;
  const auto* images = static_cast<const T*>(operands.images);
  auto* y = static_cast<T*>(operands.y);

  const auto copy_images = [&](unsigned char* shared, const Tile& tile) {
    copy_stem_images(shared, images, shape, tile.image, tile.row, tile.column, image_rows,
                     threadIdx.x, threads);
  };
  uint32_t weights[inner_steps][4];
  load_weights(weights, static_cast<const T*>(operands.weights));
  ChannelSums sums;
  if (blockIdx.x < tiles) copy_images(image_area, Tile(shape, blockIdx.x));
  cp_async_commit_group();
  int turn = 0;
  for (int64_t index = blockIdx.x; index < tiles; index += gridDim.x, ++turn) {
    const int64_t next = index + gridDim.x;
    if (next < tiles) {
      copy_images(image_area + (turn + 1) % 2 * image_bytes, Tile(shape, next));
    }
    cp_async_commit_group();
    cp_async_wait_group<1>();
    fence_async_proxy();
    __syncthreads();
    const unsigned char* rows = image_area + turn % 2 * image_bytes;
    const Tile tile(shape, index);
    const int columns = min(stem_tile_columns, shape.output_width - tile.column);
    const int end = min(tile_rows, shape.output_height - tile.row);
    for (int row = group; row < end; row += groups) {
      float results[56];
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < inner_steps; ++step) {
        const uint64_t windows =
            row_operand(rows + (2 * row + step / 2) * stem_row_bytes + step % 2 * 32);
        wgmma_m64n112k16<T>(results, weights[step], windows, step > 0);
      }
      wgmma_commit_group();
      wgmma_wait_all();
      use_results(results);
      const int64_t at =
          (tile.image * shape.output_height + tile.row + row) * shape.output_width + tile.column;
      T* row_of_y = y + at * stem_channels;
      if (columns == stem_tile_columns) {
        finish_row<T, true>(results, columns, staging, sums, row_of_y);
      } else {
        finish_row<T, false>(results, columns, staging, sums, row_of_y);
      }
    }
    __syncthreads();  // all are done with these images
  }
  add_sums(sums, operands, scratch);
#else
  __trap();
#endif
}

}  // namespace

void launch_stem_forward(Precision precision, const StemForwardOperands& operands,
                         const StemShape& shape, const ReductionScratch& scratch,
                         cudaStream_t stream) {
  const int64_t tiles = tile_count(shape);
  const auto blocks = static_cast<unsigned>(min(tiles, int64_t{scratch.multiprocessors}));
  with_16_bit_type(precision, [&]<class T>() {
    enqueue({blocks, threads, stream, shared_bytes}, stem_forward_kernel<T>, operands, shape, tiles,
            scratch);
  });
}

}  // namespace nearmetal::cuda
