// How second_moments.cu forms its operand and multiplies it with itself (device code).
#pragma once

#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/copy_async.h"
#include "models/cuda/kernels/warp.h"
#include "models/cuda/kernels/warp_product.h"

namespace nearmetal::cuda {

// A warp forms z in pieces of 16 rows x 64 channels. As the tensor cores may take rows and channels
// in any order, a lane copies 8 neighbouring channels of 4 rows: paired by rows, they are its part
// of both operands of the product. So fragment m, of 16 channels, has channels 2 m and 2 m + 1 of
// each 8, group g channel g of each 8, and their product is a result [16, 8].
inline constexpr int piece_rows = 16, piece_channels = 64;
inline constexpr int piece_fragments = 4, piece_groups = 8;
inline constexpr int piece_warps = 12;  // at 168 registers
// The sums need this room in the end. Five of the stages are on their way, 10 KB for each warp.
inline constexpr int piece_stages = 6;

// Products of a piece with itself: those on and right of the diagonal, then sums of its columns.
inline constexpr int square_products = 20, square_results = square_products + piece_fragments;
__host__ __device__ constexpr int square_result(int m, int g) { return m * (7 - m) + g; }
// Products of both pieces of a row of 128: a square for each, then fragments of the first one with
// groups of the second.
inline constexpr int mixed_results = piece_fragments * piece_groups;
inline constexpr int mixed_share = mixed_results / 2;  // of a warp

// The warps that multiply the same rows.
template <int inputs>
struct MomentsTeam {
  static constexpr int pieces = inputs / piece_channels;  // of a row
  static constexpr int warps = pieces * pieces;
  static constexpr int count = piece_warps / warps;  // in a block
  static constexpr int rows = piece_rows * warps / pieces;
  static constexpr int products = pieces * square_products + (pieces - 1) * mixed_results;
  static constexpr int results = products + pieces * piece_fragments;
};

// A lane's part of a row, or of 16 channels as an operand.
struct alignas(16) Quad {
  uint32_t words[4];
};
using Piece = Quad[4][32];

inline constexpr int moments_shared_bytes =
    piece_stages * piece_warps * static_cast<int>(sizeof(Piece));

#ifdef NM_HAS_COPY_ASYNC

// From y, in the piece, z: to memory, and to the piece as an operand. This lane's rows are 4 apart;
// behind the last one z is 0.
template <class T, int inputs>
__device__ void form_piece(const NormCoefficients<T>& coefficients, int64_t rows_left, Piece& piece,
                           T* z) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Quad of_row[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const Channels<T> y = to_floats(load_pack(reinterpret_cast<const T*>(&piece[r][lane])));
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      of_row[r].words[i / 2] = two_rectified<T>(coefficients.apply(i, y.values[i]),
                                                coefficients.apply(i + 1, y.values[i + 1]));
    }
    if (4 * r < rows_left) {
      *reinterpret_cast<Quad*>(z + 4 * r * inputs) = of_row[r];
    } else {
      of_row[r] = {};
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const auto even = [&](int r) {
      return __byte_perm(of_row[r].words[j], of_row[r + 1].words[j], 0x5410);
    };
    const auto odd = [&](int r) {
      return __byte_perm(of_row[r].words[j], of_row[r + 1].words[j], 0x7632);
    };
    piece[j][lane] = {even(0), odd(0), even(2), odd(2)};
  }
}

template <class T>
__device__ void add_products(float (&sums)[4], const Quad& a, const Quad& b, int group) {
  multiply_add<T>(sums, a.words, b.words[group % 2], b.words[2 + group % 2]);
}

template <class T>
__device__ void add_square(float (&sums)[square_results][4], const Piece& piece) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t ones = two_rounded<T>(1, 1);
  Quad fragments[piece_fragments];
#pragma unroll
  for (int m = 0; m < piece_fragments; ++m) fragments[m] = piece[m][lane];
#pragma unroll
  for (int m = 0; m < piece_fragments; ++m) {
#pragma unroll
    for (int g = 2 * m; g < piece_groups; ++g) {
      add_products<T>(sums[square_result(m, g)], fragments[m], fragments[g / 2], g);
    }
    multiply_add<T>(sums[square_products + m], fragments[m].words, ones, ones);
  }
}

// `share`: of the two of a team, the first half of the fragments or the second.
template <class T>
__device__ void add_mixed(float (&sums)[square_results][4], int share, const Piece& first,
                          const Piece& second) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Quad left[2] = {first[2 * share][lane], first[2 * share + 1][lane]};
#pragma unroll
  for (int g = 0; g < piece_groups; g += 2) {
    const Quad right = second[g / 2][lane];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      add_products<T>(sums[i / 2 * piece_groups + g + i % 2], left[i / 2], right, i % 2);
    }
  }
}

// Adds up the teams' sums.
template <class Team>
__device__ void leave_chunk(const float4* sums, float* partial_sums) {
  constexpr int values = Team::results * 32;
  auto* chunk = reinterpret_cast<float4*>(partial_sums) + int64_t{blockIdx.x} * values;
  for (int at = static_cast<int>(threadIdx.x); at < values; at += piece_warps * 32) {
    float4 total = sums[at];
#pragma unroll
    for (int team = 1; team < Team::count; ++team) {
      const float4 part = sums[team * values + at];
      total.x += part.x;
      total.y += part.y;
      total.z += part.z;
      total.w += part.w;
    }
    chunk[at] = total;
  }
}

#endif

}  // namespace nearmetal::cuda
