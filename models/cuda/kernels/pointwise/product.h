// Products of the rows of a tensor with weights that stay in shared memory, for kernels that stream
// tile after tile past two warpgroups (device code).
//
// No barrier of the block stands in the loop over the tiles: a warp copies its own rows, or shares
// them with one of the other warpgroup, and takes them to the tensor cores through registers. The
// operands in shared memory lie as panels (wgmma.h).
#pragma once

#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/wgmma.h"

namespace nearmetal::cuda {

/// The convolutions for which there are kernels of second moments.
constexpr bool has_moments_kernels(int inputs) { return inputs == 64 || inputs == 128; }
inline constexpr int moments_widening = 4;  // outputs for an input

/// Calls body.operator()<T, inputs>() for a type of 16 bits.
template <class Body>
void with_inputs(Precision precision, int inputs, Body&& body) {
  with_16_bit_type(precision, [&]<class T>() {
    if (inputs == 64) return body.template operator()<T, 64>();
    body.template operator()<T, 128>();
  });
}

inline constexpr int product_threads = 256;
inline constexpr int product_blocks_at_once = 2;  // on a multiprocessor

/// `outputs` are those of a block. Both warpgroups take half the columns of the same 64 rows, or,
/// of 64 columns, 64 rows each; a warp 16 rows of these, its columns in parts of 64.
template <int inputs, int outputs>
struct ProductTiling {
  static constexpr bool shared_rows = outputs > 64;
  static constexpr int rows = shared_rows ? 64 : 128;                  // of a tile
  static constexpr int columns = shared_rows ? outputs / 2 : outputs;  // of a warp
  static constexpr int parts = columns / 64;
  // Shared memory.
  static constexpr int weights_bytes = outputs * inputs * 2;
  static constexpr int tile_bytes = rows * inputs * 2;
  static constexpr int part_bytes = 16 * 64 * 2;  // of a warp
  static constexpr int third_bytes = product_threads / 32 * parts * part_bytes;
};

#ifdef NM_HAS_WGMMA

/// The row of an output's weights, so that a thread's results are 8 neighbours of every 32.
__device__ inline int place_of_output(int output) {
  const int within = output % 32;
  return output - within + within % 8 / 2 * 8 + within / 8 * 2 + within % 2;
}

/// Byte offset of 8 values of a row in panels of `rows` rows.
__device__ inline int in_panels(int rows, int row, int chunk) {
  return chunk / 8 * rows * panel_row_bytes + panel_offset(row, chunk % 8);
}

/// Where a warp's rows and columns begin in a tile.
template <int inputs, int outputs>
struct WarpPlace {
  using Tiles = ProductTiling<inputs, outputs>;
  int warpgroup, row, column;
  __device__ WarpPlace()
      : warpgroup(static_cast<int>(threadIdx.x) / 128),
        row(static_cast<int>(threadIdx.x) / 32 * 16 % Tiles::rows),
        column(Tiles::shared_rows ? warpgroup * Tiles::columns : 0) {}

  /// All threads that use these rows meet.
  __device__ void meet() const {
    if constexpr (Tiles::shared_rows) {
      barrier_sync(1 + row / 16, 64);
    } else {
      __syncwarp();
    }
  }
};

/// A tile's rows in a tensor [rows, row_columns].
template <class T>
struct TileRows {
  T* first;
  int count;  // at least 1 but behind the last tile
  __device__ TileRows(T* tensor, int row_columns, int64_t rows, int64_t tile, int tile_rows)
      : first(tensor + tile * tile_rows * row_columns),
        count(static_cast<int>(min(rows - tile * tile_rows, int64_t{tile_rows}))) {}
};

/// Copies this warp's rows of a tile of x in the background as one group of copies; of rows that
/// two warps share, each half.
template <class T, int inputs, int outputs>
__device__ void copy_rows(unsigned char* tile_of_x, const TileRows<const T>& x) {
  using Tiles = ProductTiling<inputs, outputs>;
  const WarpPlace<inputs, outputs> place;
  constexpr int warps = Tiles::shared_rows ? 2 : 1, packs = inputs / 8;
  const int first =
      (Tiles::shared_rows ? place.warpgroup * 32 : 0) + static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 16 * packs / (32 * warps); ++i) {
    const int row = place.row + first / packs + i * 32 * warps / packs, chunk = first % packs;
    cp_async_16(tile_of_x + in_panels(Tiles::rows, row, chunk), x.first + row * inputs + chunk * 8,
                row < x.count);
  }
  cp_async_commit_group();
}

/// 64 inputs of a warp's 16 rows as operands of the tensor cores: [k][side * 2 + half] has two
/// neighbours, inputs 16 k + 8 side + 2 (lane % 4) and the next, of row lane / 4 + 8 half.
using RowFragments = uint32_t[4][4];

/// sums = this warpgroup's rows x the weights of 64 of its columns. form(fragments, panel) changes
/// x first, where the operand is not x itself.
template <class T, int inputs, int outputs, class Form>
__device__ void multiply_part(float (&sums)[32], const unsigned char* tile_of_x,
                              const unsigned char* weights, int part, const Form& form) {
  using Tiles = ProductTiling<inputs, outputs>;
  const WarpPlace<inputs, outputs> place;
  const int lane = static_cast<int>(threadIdx.x) % 32, column = place.column + part * 64;
#pragma unroll
  for (int panel = 0; panel < inputs / 64; ++panel) {
    RowFragments fragments;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      load_matrices<false>(fragments[k], tile_of_x + in_panels(Tiles::rows, place.row + lane % 16,
                                                               panel * 8 + k * 2 + lane / 16));
    }
    form(fragments, panel);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint64_t b =
          panel_operand(weights + (panel * outputs + column) * panel_row_bytes + k * 32);
      wgmma_m64n64k16<T>(sums, fragments[k], b, panel + k > 0);
    }
    wgmma_commit_group();
    wgmma_wait_all();
  }
  use_results(sums);
}

/// A thread has 8 neighbours of a part in each of two pieces of 32 columns, in two rows:
/// row + 8 half of the warp's, columns from column + 32 piece of the part's on.
struct ResultPlace {
  int row, column;
  __device__ ResultPlace()
      : row(static_cast<int>(threadIdx.x) % 32 / 4),
        column(static_cast<int>(threadIdx.x) % 4 * 8) {}
  __device__ static constexpr int index(int piece, int half, int i) {
    return (piece * 4 + i / 2) * 4 + half * 2 + i % 2;
  }
};

/// The third operand of an epilogue [rows, row_columns], copied a part of a tile ahead in the
/// background: loads into registers wait for those of the next tile, too, where they share a
/// scoreboard. Eight lanes copy 128 bytes of a row, which the lanes with the results of these rows
/// find in their order.
template <class T, int inputs, int outputs>
class ThirdOperand {
 public:
  using Tiles = ProductTiling<inputs, outputs>;

  __device__ explicit ThirdOperand(unsigned char* shared)
      : warp_(shared + threadIdx.x / 32 * Tiles::parts * Tiles::part_bytes) {}

  /// As one group of copies.
  template <int row_columns, class Rows>
  __device__ void copy(const Rows& from, int part) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, chunk = lane % 8;
    const int first = place_.row + lane / 8;
    const T* columns = from.first + place_.column + part * 64 + chunk * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first + i * 4;
      cp_async_16(at(part, chunk / 4, i / 2, (lane / 8 + i % 2 * 4) * 4 + chunk % 4),
                  columns + row * row_columns, row < from.count);
    }
    cp_async_commit_group();
  }
  __device__ Channels<T> get(int part, int piece, int half) const {
    return floats_of<T>(
        *reinterpret_cast<const uint4*>(at(part, piece, half, static_cast<int>(threadIdx.x) % 32)));
  }

 private:
  __device__ unsigned char* at(int part, int piece, int half, int lane) const {
    return warp_ + part * Tiles::part_bytes + ((piece * 2 + half) * 32 + lane) * 16;
  }

  const WarpPlace<inputs, outputs> place_;
  unsigned char* warp_;
};

/// Stores the packed results of a thread's row `row` of a tile in both pieces, of columns from
/// `column` on. Neighbouring rows exchange pieces first, so that eight lanes store 128 bytes of a
/// row.
template <int row_columns, class T>
__device__ void store_results(const TileRows<T>& to, int column, int row, const uint4& first,
                              const uint4& second) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool odd = lane / 4 % 2 == 1;
  const uint4 sent = odd ? first : second, kept = odd ? second : first;
  uint4 received;
  received.x = __shfl_xor_sync(0xffffffff, sent.x, 4);
  received.y = __shfl_xor_sync(0xffffffff, sent.y, 4);
  received.z = __shfl_xor_sync(0xffffffff, sent.z, 4);
  received.w = __shfl_xor_sync(0xffffffff, sent.w, 4);
  const int even_row = row - (odd ? 1 : 0);
  T* at = to.first + even_row * row_columns + column + (lane % 4 + (odd ? 4 : 0)) * 8;
  if (even_row < to.count) *reinterpret_cast<uint4*>(at) = odd ? received : kept;
  if (even_row + 1 < to.count) *reinterpret_cast<uint4*>(at + row_columns) = odd ? kept : received;
}

#endif  // NM_HAS_WGMMA

}  // namespace nearmetal::cuda
