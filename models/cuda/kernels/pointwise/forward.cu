#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/pointwise/product.h"
#include "models/cuda/kernels/pointwise/second_moments.h"

namespace nearmetal::cuda {
namespace {

// The outputs of a block: so many that two blocks share a multiprocessor.
__host__ __device__ constexpr int forward_slice(int inputs) { return inputs == 64 ? 256 : 128; }

template <int inputs>
constexpr int forward_shared_bytes() {
  using Tiles = ProductTiling<inputs, forward_slice(inputs)>;
  return panel_alignment + Tiles::weights_bytes + 2 * Tiles::tile_bytes + Tiles::third_bytes +
         4 * forward_slice(inputs) * static_cast<int>(sizeof(float));
}

#ifdef NM_HAS_WGMMA

// One output's, and those of the residual's batch norm there.
template <bool normalised>
struct ForwardCoefficients {
  float multiplier, shift;
};
template <>
struct ForwardCoefficients<true> {
  float multiplier, shift, residual_multiplier, residual_shift;
};
// Output i of 8 of all packs in a row, so that neighbouring lanes meet no bank conflicts.
template <bool normalised, int outputs>
using ForwardTable = ForwardCoefficients<normalised>[8][outputs / 8];

template <bool normalised, int outputs>
__device__ void load_coefficients(ForwardTable<normalised, outputs>& table,
                                  const BatchNormState& state, const NormInput& residual_norm,
                                  int first_output, const Count& count) {
  for (int at = static_cast<int>(threadIdx.x); at < outputs; at += product_threads) {
    auto& entry = table[at % 8][at / 8];
    const int output = first_output + at;
    entry.multiplier = state.multiplier[output];
    entry.shift = state.shift[output];
    if constexpr (normalised) {
      const ChannelCoefficients residual(residual_norm, count, output, blockIdx.x == 0);
      entry.residual_multiplier = residual.multiplier;
      entry.residual_shift = residual.shift;
    }
  }
}

// Lane q of four gets the bytes q of all, in the order of the lanes.
__device__ unsigned transposed_bytes(unsigned bytes) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  unsigned result = 0;
#pragma unroll
  for (int distance = 0; distance < 4; ++distance) {
    const int other = lane ^ distance;
    const unsigned sent = bytes >> 8 * other & 255;
    result |= __shfl_xor_sync(0xffffffff, sent, distance) << 8 * other;
  }
  return result;
}

#endif

template <class T, int inputs, bool normalised>
__global__ void __launch_bounds__(product_threads, product_blocks_at_once)
    pointwise_forward_kernel(PointwiseForwardOperands operands, NormInput residual_norm,
                             int64_t rows, Count count_of_rows) {
#ifdef NM_HAS_WGMMA
  constexpr int outputs = moments_widening * inputs, slice = forward_slice(inputs);
  using Tiles = ProductTiling<inputs, slice>;
  extern __shared__ unsigned char unaligned[];
  unsigned char* weights = aligned_for_panels(unaligned);
  unsigned char* tiles = weights + Tiles::weights_bytes;
  unsigned char* third = tiles + 2 * Tiles::tile_bytes;
  auto& coefficients =
      *reinterpret_cast<ForwardTable<normalised, slice>*>(third + Tiles::third_bytes);
  const int first_output = static_cast<int>(blockIdx.y) * slice;
  const auto x_of = [&](int64_t tile) {
    return TileRows<const T>(static_cast<const T*>(operands.x), inputs, rows, tile, Tiles::rows);
  };
  const auto residual_of = [&](int64_t tile) {
    return TileRows<const T>(static_cast<const T*>(operands.residual) + first_output, outputs, rows,
                             tile, Tiles::rows);
  };
  const ThirdOperand<T, inputs, slice> residual(third);

  for (int at = static_cast<int>(threadIdx.x); at < slice * inputs / 8; at += product_threads) {
    const int output = at / (inputs / 8), chunk = at % (inputs / 8);
    cp_async_16(weights + in_panels(slice, place_of_output(output), chunk),
                static_cast<const T*>(operands.weights) + int64_t{first_output + output} * inputs +
                    chunk * 8,
                true);
  }
  copy_rows<T, inputs, slice>(tiles, x_of(blockIdx.x));
#pragma unroll
  for (int part = 0; part < Tiles::parts; ++part) {
    residual.template copy<outputs>(residual_of(blockIdx.x), part);
  }
  load_coefficients<normalised, slice>(coefficients, operands.state, residual_norm, first_output,
                                       count_of_rows);
  cp_async_wait_group<Tiles::parts>();
  fence_async_proxy();
  __syncthreads();  // weights and coefficients are complete

  const WarpPlace<inputs, slice> warp;
  const ResultPlace place;
  const int64_t count = (rows + Tiles::rows - 1) / Tiles::rows;
  int stage = 0;
  for (int64_t tile = blockIdx.x; tile < count; tile += gridDim.x, stage = 1 - stage) {
    const int64_t next = tile + gridDim.x;
    const int row = warp.row + place.row;
    const TileRows<T> y(static_cast<T*>(operands.y) + first_output, outputs, rows, tile,
                        Tiles::rows);
    cp_async_wait_group<Tiles::parts>();  // all but the residual's
    warp.meet();                          // and nobody reads the other stage any more
    copy_rows<T, inputs, slice>(tiles + (1 - stage) * Tiles::tile_bytes, x_of(next));
    unsigned mask[2] = {};
#pragma unroll
    for (int part = 0; part < Tiles::parts; ++part) {
      float sums[32];
      multiply_part<T, inputs, slice>(sums, tiles + stage * Tiles::tile_bytes, weights, part,
                                      [](RowFragments&, int) {});
      // This part; behind it are the rest of the tile's, the next x, and the next residual's.
      cp_async_wait_group<Tiles::parts>();
      __syncwarp();
      uint4 packs[2][2];  // of a piece and half
      const int first_column = warp.column + part * 64;
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) {
        const int column = first_column + piece * 32 + place.column;
        Channels<T> values[2] = {residual.get(part, piece, 0), residual.get(part, piece, 1)};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const ForwardCoefficients<normalised> at = coefficients[i][column / 8];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float other = values[half].values[i];
            if constexpr (normalised) {
              other = fmaf(other, at.residual_multiplier, at.residual_shift);
            }
            const float value =
                other + fmaf(sums[ResultPlace::index(piece, half, i)], at.multiplier, at.shift);
            mask[half] |= value > 0 ? 1u << (part * 16 + piece * 8 + i) : 0u;
            values[half].values[i] = value < 0 ? 0.0f : value;  // a NaN stays
          }
        }
        packs[piece][0] = packed(values[0]);
        packs[piece][1] = packed(values[1]);
      }
      __syncwarp();  // all lanes have read
      residual.template copy<outputs>(residual_of(next), part);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        store_results<outputs>(y, first_column, row + half * 8, packs[0][half], packs[1][half]);
      }
    }
    // Four lanes have the bits of all pieces, 8 of each; afterwards each has those of one.
    const int piece = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned bits = transposed_bytes(mask[half]);
      if (row + half * 8 >= y.count || piece >= Tiles::parts * 2) continue;
      const int64_t at =
          (tile * Tiles::rows + row + half * 8) * outputs + first_output + warp.column + piece * 32;
      *reinterpret_cast<unsigned*>(operands.mask + at / 8) = bits;
    }
  }
  cp_async_wait_group<0>();
#else
  __trap();
#endif
}

}  // namespace

void launch_pointwise_forward(Precision precision, const PointwiseForwardOperands& operands,
                              int64_t rows, int inputs, int multiprocessors, cudaStream_t stream) {
  with_inputs(precision, inputs, [&]<class T, int channels>() {
    constexpr int bytes = forward_shared_bytes<channels>();
    const bool normalised = operands.residual_norm != nullptr;
    const auto kernel = normalised ? pointwise_forward_kernel<T, channels, true>
                                   : pointwise_forward_kernel<T, channels, false>;
    constexpr int slices = moments_widening * channels / forward_slice(channels);
    constexpr int tile_rows = ProductTiling<channels, forward_slice(channels)>::rows;
    const int64_t tiles = (rows + tile_rows - 1) / tile_rows;
    const int64_t at_once = max(1, multiprocessors * product_blocks_at_once / slices);
    const dim3 grid(static_cast<unsigned>(min(tiles, at_once)), slices);
    enqueue({grid, product_threads, stream, bytes}, kernel, operands,
            normalised ? *operands.residual_norm : NormInput{}, rows, Count(rows));
  });
}

}  // namespace nearmetal::cuda
