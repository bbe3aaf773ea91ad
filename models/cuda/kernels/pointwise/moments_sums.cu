#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/partial_sums.h"
#include "models/cuda/kernels/pointwise/moments_inputs.h"
#include "models/cuda/kernels/pointwise/product.h"
#include "models/cuda/kernels/pointwise/second_moments.h"

namespace nearmetal::cuda {
namespace {

template <int channels>
constexpr int sums_shared_bytes() {
  using Tiles = ProductTiling<channels, channels>;
  return panel_alignment + Tiles::weights_bytes + 2 * Tiles::tile_bytes + Tiles::third_bytes +
         channels * 6 * static_cast<int>(sizeof(float));
}

constexpr int finish_channels = partial_sums_values / 2;

#ifdef NM_HAS_WGMMA

// Partial sums lie so that a block of sum_of_blocks() gets both sums of 16 channels.
__device__ constexpr int sum_place(int channel, int sum) {
  return channel / finish_channels * partial_sums_values + sum * finish_channels +
         channel % finish_channels;
}

// One channel's.
struct SumsCoefficients {
  float multiplier, shift, mean, summand;
};
template <int channels>
struct SumsTables {
  // Channel i of 8 of all packs in a row, so that neighbouring lanes meet no bank conflicts.
  SumsCoefficients of_results[8][channels / 8];
  float2 multiplier_and_shift[channels];
};

// z from x as the forward pass formed it: each fragment has two neighbours of two rows, and those 8
// channels further.
template <class T>
__device__ void form(RowFragments& fragments, const float2* multiplier_and_shift) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const auto norm =
          *reinterpret_cast<const float4*>(multiplier_and_shift + k * 16 + side * 8 + first);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t& two = fragments[k][side * 2 + half];
        const float2 x = two_floats<T>(two);
        two = two_rectified<T>(fmaf(x.x, norm.x, norm.y), fmaf(x.y, norm.z, norm.w));
      }
    }
  }
}

#endif

// Forms dz = mask * (dz + z M + k), and sums it and dz * (x - mean) over this block's tiles.
template <class T, int channels>
__global__ void __launch_bounds__(product_threads, product_blocks_at_once)
    moments_sums_kernel(MomentsSumsOperands operands, int64_t rows, float* partial_sums) {
#ifdef NM_HAS_WGMMA
  using Tiles = ProductTiling<channels, channels>;
  extern __shared__ unsigned char unaligned[];
  unsigned char* matrix = aligned_for_panels(unaligned);
  unsigned char* x_tiles = matrix + Tiles::weights_bytes;
  unsigned char* third = x_tiles + 2 * Tiles::tile_bytes;
  auto& tables = *reinterpret_cast<SumsTables<channels>*>(third + Tiles::third_bytes);
  const auto x_of = [&](int64_t tile) {
    return TileRows<const T>(static_cast<const T*>(operands.x), channels, rows, tile, Tiles::rows);
  };
  const auto dz_of = [&](int64_t tile) {
    return TileRows<T>(static_cast<T*>(operands.dz), channels, rows, tile, Tiles::rows);
  };
  const ThirdOperand<T, channels, channels> incoming(third);
  copy_rows<T, channels, channels>(x_tiles, x_of(blockIdx.x));
  incoming.template copy<channels>(dz_of(blockIdx.x), 0);

  // As M may be below what 16 bits hold, it is scaled by a power of two. M is symmetric.
  const float largest = __uint_as_float(*operands.largest);
  const bool scales = largest > 0 && largest < INFINITY;
  const int exponent = scales ? max(ilogbf(largest), -126) : 0;  // 2^126 is finite
  const float down = ldexpf(1.0f, -exponent), up = ldexpf(1.0f, exponent);
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < channels * channels / 8;
       at += product_threads) {
    const int output = at / (channels / 8), chunk = at % (channels / 8);
    auto values = Channels<T>::load(operands.matrix + at * 8);
#pragma unroll
    for (float& value : values.values) value *= down;
    *reinterpret_cast<Pack<T>*>(matrix + in_panels(channels, place_of_output(output), chunk)) =
        from_floats<T>(values);
  }
  for (int at = static_cast<int>(threadIdx.x); at < channels; at += product_threads) {
    const BatchNormState& state = operands.state;
    const float2 norm = {state.multiplier[at], state.shift[at]};
    tables.of_results[at % 8][at / 8] =
        SumsCoefficients{norm.x, norm.y, state.mean[at], operands.vector[at]};
    tables.multiplier_and_shift[at] = norm;
  }
  fence_async_proxy();
  __syncthreads();

  static_assert(Tiles::parts == 1);
  const WarpPlace<channels, channels> warp;
  const ResultPlace place;
  float sums[2][2][8] = {};
  const int64_t count = (rows + Tiles::rows - 1) / Tiles::rows;
  int stage = 0;
  for (int64_t tile = blockIdx.x; tile < count; tile += gridDim.x, stage = 1 - stage) {
    const int64_t next = tile + gridDim.x;
    const int row = warp.row + place.row;
    const TileRows<T> dz = dz_of(tile);
    const unsigned char* x_tile = x_tiles + stage * Tiles::tile_bytes;
    cp_async_wait_group<1>();  // all but the incoming gradient's
    warp.meet();               // and nobody reads the other stage any more
    copy_rows<T, channels, channels>(x_tiles + (1 - stage) * Tiles::tile_bytes, x_of(next));
    float products[32];
    multiply_part<T, channels, channels>(
        products, x_tile, matrix, 0, [&](RowFragments& fragments, int panel) {
          form<T>(fragments, tables.multiplier_and_shift + panel * 64);
        });
    cp_async_wait_group<1>();  // all but the next x
    __syncwarp();
    uint4 packs[2][2];  // of a piece and half
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const int pack = (warp.column + piece * 32 + place.column) / 8;
      Channels<T> values[2] = {incoming.get(0, piece, 0), incoming.get(0, piece, 1)}, at_x[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        at_x[half] = floats_of<T>(*reinterpret_cast<const uint4*>(
            x_tile + in_panels(Tiles::rows, warp.row + place.row + half * 8, pack)));
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const SumsCoefficients at = tables.of_results[i][pack];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float x_value = at_x[half].values[i];
          const bool passes =
              row + half * 8 < dz.count && fmaf(x_value, at.multiplier, at.shift) > 0;
          const float term = fmaf(products[ResultPlace::index(piece, half, i)], up, at.summand);
          const float value = passes ? values[half].values[i] + term : 0.0f;
          sums[piece][0][i] += value;
          sums[piece][1][i] = fmaf(value, x_value - at.mean, sums[piece][1][i]);
          values[half].values[i] = value;
        }
      }
      packs[piece][0] = packed(values[0]);
      packs[piece][1] = packed(values[1]);
    }
    __syncwarp();  // all lanes have read
    incoming.template copy<channels>(dz_of(next), 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store_results<channels>(dz, warp.column, row + half * 8, packs[0][half], packs[1][half]);
    }
  }
  cp_async_wait_group<0>();
  __syncthreads();

  // Lanes 4 apart have the same columns; then warps of a warpgroup, or of both.
  auto* shared_sums = reinterpret_cast<float*>(x_tiles);  // [warps][2 channels], in places
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
#pragma unroll
    for (int sum = 0; sum < 2; ++sum) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float value = sums[piece][sum][i];
        for (int distance = 4; distance < 32; distance *= 2) {
          value += __shfl_xor_sync(0xffffffff, value, distance);
        }
        const int channel = warp.column + piece * 32 + place.column + i;
        if (lane < 4)
          shared_sums[threadIdx.x / 32 * 2 * channels + sum_place(channel, sum)] = value;
      }
    }
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < 2 * channels; at += product_threads) {
    const int channel = at / partial_sums_values * finish_channels + at % finish_channels;
    const int first = Tiles::shared_rows ? channel / Tiles::columns * 4 : 0;
    float total = 0;
    for (int w = first; w < first + (Tiles::shared_rows ? 4 : 8); ++w) {
      total += shared_sums[w * 2 * channels + at];
    }
    partial_sums[int64_t{blockIdx.x} * 2 * channels + at] = total;
  }
#else
  __trap();
#endif
}

// A block for 16 channels.
__global__ void __launch_bounds__(partial_sums_threads)
    finish_sums_kernel(const float* partial_sums, int blocks, int values, BatchNormState state,
                       Count count) {
  const int first = static_cast<int>(blockIdx.x) * partial_sums_values;
  const float sum = sum_of_blocks(partial_sums, blocks, values, first);
  if (threadIdx.x >= partial_sums_values) return;
  const float centred_sum = __shfl_down_sync(0xffffffff, sum, finish_channels);
  if (threadIdx.x >= finish_channels) return;
  const auto channel = static_cast<int>(blockIdx.x * finish_channels + threadIdx.x);
  finish_backward(state, channel, sum, centred_sum, count);
}

}  // namespace

void launch_moments_sums(Precision precision, const MomentsSumsOperands& operands, int64_t rows,
                         int inputs, const ReductionScratch& scratch, cudaStream_t stream) {
  with_inputs(precision, inputs, [&]<class T, int channels>() {
    using Tiles = ProductTiling<channels, channels>;
    constexpr int bytes = sums_shared_bytes<channels>();
    static_assert(product_blocks_at_once * 2 * channels <=
                  most_blocks_per_multiprocessor * most_sums * slice_channels);
    const int64_t tiles = (rows + Tiles::rows - 1) / Tiles::rows;
    const int64_t at_once = int64_t{product_blocks_at_once} * scratch.multiprocessors;
    const auto blocks = static_cast<int>(min(tiles, at_once));
    launch_kernel({dim3(blocks), product_threads, stream, bytes}, moments_sums_kernel<T, channels>,
                  operands, rows, scratch.partial_sums);
    launch_kernel({channels / finish_channels, partial_sums_threads, stream}, finish_sums_kernel,
                  scratch.partial_sums, blocks, 2 * channels, operands.state, Count(rows));
  });
}

}  // namespace nearmetal::cuda
