// The parts that the attention kernels share: rows of a head in memory, tiles of them in shared
// memory, and products of a warp's 16 rows with those of a tile (device code).
#pragma once

#include <cmath>

#include "models/cuda/kernels/attention/attention.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/warp.h"

namespace nearmetal::cuda {

inline constexpr int strip_rows = 16;  // of a warp
inline constexpr int tile_rows = 64;
inline constexpr int tile_blocks = tile_rows / strip_rows;
inline constexpr int most_attention_warps = 8;  // twice on a multiprocessor, with 128 registers
inline constexpr float log2_e = 1.44269504f;

/// Rows of a tile are 16 bytes longer than a head, against bank conflicts.
template <class T, int d>
using AttentionTile = T[tile_rows][d + 8];

/// How blocks are laid over a grid: x over the matrices, y over the strips.
struct AttentionGrid {
  dim3 grid;
  unsigned threads;

  explicit AttentionGrid(const AttentionExtent& extent) {
    const int64_t strips = (extent.tokens + strip_rows - 1) / strip_rows;
    const int64_t blocks = (strips + most_attention_warps - 1) / most_attention_warps;
    threads = static_cast<unsigned>((strips + blocks - 1) / blocks * warp_lanes);
    grid = dim3(static_cast<unsigned>(extent.matrices()), static_cast<unsigned>(blocks));
  }
};

#ifdef NM_HAS_COPY_ASYNC

/// 2 to the power of x; 0 where that is no normal number.
__device__ inline float power_of_2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

/// Calls body.operator()<full>() with whether all rows of a tile are there, of which so many are
/// left: then its blocks need no branches between them, and their instructions overlap.
template <class Body>
__device__ void with_tile(int left, Body&& body) {
  if (left >= tile_rows) {
    body.template operator()<true>();
  } else {
    body.template operator()<false>();
  }
}

/// The rows of one head of one sample in a tensor.
template <class T>
struct HeadRows {
  T* first;
  int64_t step;
  int count;

  __device__ T* row(int index) const { return first + index * step; }
};

/// `part` of [batch, tokens, parts x features] for the matrix of this block.
template <class T>
__device__ HeadRows<T> head_rows(const AttentionExtent& extent, T* tensor, int parts, int part) {
  const int64_t sample = blockIdx.x / extent.heads, head = blockIdx.x % extent.heads;
  const int64_t step = parts * extent.features();
  return {tensor + sample * extent.tokens * step + part * extent.features() +
              head * extent.head_features,
          step, static_cast<int>(extent.tokens)};
}

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % warp_lanes; }

/// The first of this warp's rows.
__device__ inline int first_strip_row() {
  const unsigned strip = blockIdx.y * (blockDim.x / warp_lanes) + threadIdx.x / warp_lanes;
  return static_cast<int>(strip) * strip_rows;
}

/// Copies rows to a tile in the background; behind the last there are zeros.
template <class T, int d>
__device__ void copy_tile(AttentionTile<T, d>& tile, const HeadRows<const T>& rows, int first) {
  constexpr int chunks = d / 8;
  for (int at = static_cast<int>(threadIdx.x); at < tile_rows * chunks; at += blockDim.x) {
    const int row = at / chunks, column = at % chunks * 8;
    const bool inside = first + row < rows.count;
    cp_async_16(&tile[row][column], rows.row(inside ? first + row : 0) + column, inside);
  }
}

/// The 16 rows of a warp as the first operand of products; behind the last there are zeros.
template <class T, int d>
struct Strip {
  uint32_t of[d / 16][4];

  __device__ Strip(const HeadRows<const T>& rows, int first) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + lane / 4 + half * 8;
      const T* values = rows.row(row < rows.count ? row : 0) + lane % 4 * 2;
#pragma unroll
      for (int k = 0; k < d / 16; ++k) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const auto two = *reinterpret_cast<const uint32_t*>(values + k * 16 + part * 8);
          of[k][part * 2 + half] = row < rows.count ? two : 0;
        }
      }
    }
  }
};

/// [16, 16]: of a strip and 16 rows of a tile, as two results side by side.
struct Block {
  float of[2][4] = {};

  /// Rounded, the first operand of a product.
  template <class T>
  __device__ void round(uint32_t (&operand)[4]) const {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        operand[part * 2 + half] = two_rounded<T>(of[part][half * 2], of[part][half * 2 + 1]);
      }
    }
  }
};

/// Calls body(part, half, column, index) for what this lane has of a block: row `half` of its two,
/// a column of 16, and element of[part][index].
template <class Body>
__device__ void for_each_element(Body body) {
  const int first = lane_of_warp() % 4 * 2;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
#pragma unroll
    for (int index = 0; index < 4; ++index) {
      body(part, index / 2, part * 8 + first + index % 2, index);
    }
  }
}

/// Each row of the strip by each of 16 rows of a tile, which begin at `rows`.
template <class T, int d>
__device__ Block by_rows(const Strip<T, d>& strip, const T (*rows)[d + 8]) {
  const int lane = lane_of_warp();
  const T* address = &rows[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8];
  Block block;
#pragma unroll
  for (int k = 0; k < d / 16; ++k) {
    uint32_t b[4];
    load_matrices<false>(b, address + k * 16);
    multiply_add<T>(block.of[0], strip.of[k], b[0], b[1]);
    multiply_add<T>(block.of[1], strip.of[k], b[2], b[3]);
  }
  return block;
}

/// sums [16, d] += weights [16, 16] times 16 rows of a tile.
template <class T, int d>
__device__ void add_weighted(float (&sums)[d / 8][4], const uint32_t (&weights)[4],
                             const T (*rows)[d + 8]) {
  const int lane = lane_of_warp();
  const T* address = &rows[lane % 16][lane / 16 * 8];
#pragma unroll
  for (int n = 0; n < d / 16; ++n) {
    uint32_t b[4];
    load_matrices<true>(b, address + n * 16);
    multiply_add<T>(sums[2 * n], weights, b[0], b[1]);
    multiply_add<T>(sums[2 * n + 1], weights, b[2], b[3]);
  }
}

/// Writes a strip, each of its lane's two rows times its factor.
template <class T, int d>
__device__ void store_strip(const HeadRows<T>& rows, int first, const float (&values)[d / 8][4],
                            const float (&factors)[2]) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane / 4 + half * 8;
    if (row >= rows.count) continue;
    T* out = rows.row(row) + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < d / 8; ++n) {
      *reinterpret_cast<uint32_t*>(out + n * 8) = two_rounded<T>(
          values[n][half * 2] * factors[half], values[n][half * 2 + 1] * factors[half]);
    }
  }
}

#endif  // NM_HAS_COPY_ASYNC

}  // namespace nearmetal::cuda
