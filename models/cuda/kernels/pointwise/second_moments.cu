#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/pointwise/product.h"
#include "models/cuda/kernels/pointwise/second_moments.h"

namespace nearmetal::cuda {
namespace {

// A warp forms z in pieces of 16 rows x 64 channels. As the tensor cores may take rows and channels
// in any order, a lane copies 8 neighbouring channels of 4 rows: paired by rows, they are its part
// of both operands of the product. So fragment m, of 16 channels, has channels 2 m and 2 m + 1 of
// each 8, group g channel g of each 8, and their product is a result [16, 8].
constexpr int piece_rows = 16, piece_channels = 64;
constexpr int piece_fragments = 4, piece_groups = 8;
constexpr int piece_warps = 12;  // at 168 registers
// The sums need this room in the end. Five of the stages are on their way, 10 KB for each warp.
constexpr int piece_stages = 6;

// Products of a piece with itself: those on and right of the diagonal, then sums of its columns.
constexpr int square_products = 20, square_results = square_products + piece_fragments;
__host__ __device__ constexpr int square_result(int m, int g) { return m * (7 - m) + g; }
// Products of both pieces of a row of 128: a square for each, then fragments of the first one with
// groups of the second.
constexpr int mixed_results = piece_fragments * piece_groups;
[[maybe_unused]] constexpr int mixed_share = mixed_results / 2;  // of a warp; of Hopper alone

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

constexpr int moments_shared_bytes = piece_stages * piece_warps * static_cast<int>(sizeof(Piece));

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

// A block on each multiprocessor; each leaves a chunk of partial sums.
template <int inputs>
int moments_chunks(int64_t rows, int multiprocessors) {
  constexpr int at_once = MomentsTeam<inputs>::count * MomentsTeam<inputs>::rows;
  return static_cast<int>(min((rows + at_once - 1) / at_once, int64_t{multiprocessors}));
}

template <int inputs>
int64_t scratch_bytes(int64_t rows, int multiprocessors) {
  return int64_t{moments_chunks<inputs>(rows, multiprocessors)} * MomentsTeam<inputs>::results *
         32 * static_cast<int64_t>(sizeof(float4));
}

template <class T, int inputs>
__global__ void __launch_bounds__(piece_warps * 32)
    second_moments_kernel(SecondMomentsOperands operands, int64_t rows, Count count) {
#ifdef NM_HAS_COPY_ASYNC
  using Team = MomentsTeam<inputs>;
  static_assert(Team::count * Team::results * 32 * sizeof(float4) <= moments_shared_bytes);
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int team = warp / Team::warps, in_team = warp % Team::warps;
  auto* pieces = reinterpret_cast<Piece*>(shared_bytes) + team * Team::warps;  // of the first stage
  const int channel = in_team % Team::pieces * piece_channels + lane / 4 * 8;
  const int row = in_team / Team::pieces * piece_rows + lane % 4;
  const auto* y = static_cast<const T*>(operands.y) + channel;
  T* z = static_cast<T*>(operands.z) + channel;

  const auto copy = [&](int64_t tile, int stage) {
    Piece& piece = pieces[stage * piece_warps + in_team];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int64_t from = tile * Team::rows + row + 4 * r;
      const bool inside = tile >= 0 && from < rows;
      cp_async_16(&piece[r][lane], y + (inside ? from : 0) * inputs, inside);
    }
    cp_async_commit_group();
  };
  // As in sweep_backwards().
  const int64_t step = int64_t{gridDim.x} * Team::count;
  int64_t tile = (rows + Team::rows - 1) / Team::rows - 1 - blockIdx.x * Team::count - team;
  for (int stage = 0; stage < piece_stages - 1; ++stage) copy(tile - stage * step, stage);
  const bool store = blockIdx.x == 0 && team == 0 && row == 0;
  const NormCoefficients<T> coefficients(operands.norm, count, channel, store);

  const int share = in_team - Team::pieces;  // of the products of both pieces
  const bool is_square = share < 0;
  float sums[square_results][4] = {};
  // All teams take as many turns as the first, so that no barrier of the block finds them apart.
  for (int stage = 0; tile + team >= 0; tile -= step) {
    cp_async_wait_group<piece_stages - 2>();
    Piece* own = pieces + stage * piece_warps;
    const int64_t first = tile * Team::rows + row;
    form_piece<T, inputs>(coefficients, tile < 0 ? 0 : rows - first, own[in_team],
                          z + first * inputs);
    if constexpr (Team::warps > 1) barrier_sync(1 + team, Team::warps * 32);
    // All have multiplied the tile before.
    copy(tile - (piece_stages - 1) * step, (stage + piece_stages - 1) % piece_stages);
#pragma unroll
    for (int p = 0; p < Team::warps; p += Team::pieces) {
      if (is_square) {
        add_square<T>(sums, own[p + in_team]);
      } else {
        add_mixed<T>(sums, share, own[p], own[p + 1]);
      }
    }
    stage = (stage + 1) % piece_stages;
  }
  cp_async_wait_group<0>();
  __syncthreads();

  auto* shared_sums = reinterpret_cast<float4*>(shared_bytes);  // [teams][results][32]
  const int before =
      is_square ? in_team * square_results : Team::pieces * square_results + share * mixed_share;
#pragma unroll
  for (int i = 0; i < square_results; ++i) {
    if (!is_square && i >= mixed_share) break;
    shared_sums[(team * Team::results + before + i) * 32 + lane] = {sums[i][0], sums[i][1],
                                                                    sums[i][2], sums[i][3]};
  }
  __syncthreads();
  leave_chunk<Team>(shared_sums, operands.partial_sums);
#else
  __trap();
#endif
}

// A result among those of products: its place among all, its fragment and group.
struct ProductResult {
  int place, first_piece, m, second_piece, g;

  __device__ ProductResult(int product, int pieces) {
    first_piece = second_piece = product / square_products;
    if (first_piece < pieces) {
      const int in_square = product % square_products;
      place = first_piece * square_results + in_square;
      m = 3;
      while (square_result(m, 2 * m) > in_square) --m;
      g = in_square - square_result(m, 0);
    } else {
      const int in_mixed = product - pieces * square_products;
      place = pieces * square_results + in_mixed;
      first_piece = 0;
      second_piece = 1;
      m = in_mixed / piece_groups;
      g = in_mixed % piece_groups;
    }
  }
};

constexpr int finish_groups = 16;

// Adds up the blocks' sums, in fp64, and takes the mean out of them: a block for each result, in
// which groups of 32 threads share the chunks.
template <int inputs>
__global__ void __launch_bounds__(finish_groups * 32)
    finish_moments_kernel(const float* partial_sums, int chunks, double inverse_count,
                          InputMoments moments) {
  using Team = MomentsTeam<inputs>;
  const ProductResult result(static_cast<int>(blockIdx.x), Team::pieces);
  const int lane = static_cast<int>(threadIdx.x) % 32, group = static_cast<int>(threadIdx.x) / 32;
  const int first_column = lane % 4 * 2;  // and the next: of the result, of 8

  // The sums of columns are those of an operand of ones: elements 0 and 2 of any lane of a row.
  const auto sums_of = [](int piece, int m) {
    return piece * square_results + square_products + m;
  };
  const auto* from = reinterpret_cast<const float4*>(partial_sums);
  const auto* products = from + result.place * 32 + lane;
  const auto* row_sums = from + sums_of(result.first_piece, result.m) * 32 + lane;
  const auto* column_sums =
      from + sums_of(result.second_piece, result.g / 2) * 32 + first_column * 4;
  double totals[8] = {};  // four products, sums of two rows, of two columns
#pragma unroll 8
  for (int chunk = group; chunk < chunks; chunk += finish_groups) {
    const int at = chunk * Team::results * 32;
    const float4 part = products[at], rows = row_sums[at];
    const float4 left = column_sums[at], right = column_sums[at + 4];
    const float parts[8] = {part.x,
                            part.y,
                            part.z,
                            part.w,
                            rows.x,
                            rows.z,
                            result.g % 2 == 0 ? left.x : left.z,
                            result.g % 2 == 0 ? right.x : right.z};
#pragma unroll
    for (int i = 0; i < 8; ++i) totals[i] += parts[i];
  }
  __shared__ double shared[finish_groups][8][32];
#pragma unroll
  for (int i = 0; i < 8; ++i) shared[group][i][lane] = totals[i];
  __syncthreads();
  if (group >= 4) return;  // an element for each
  const auto total = [&](int i) {
    double sum = 0;
#pragma unroll
    for (int other = 0; other < finish_groups; ++other) sum += shared[other][i][lane];
    return sum;
  };
  const double row_sum = total(4 + group / 2), column_sum = total(6 + group % 2);
  const auto central = static_cast<float>(total(group) - row_sum * column_sum * inverse_count);
  const int r = result.first_piece * piece_channels + lane / 4 * 8 + 2 * result.m + group / 2;
  const int c = result.second_piece * piece_channels + (first_column + group % 2) * 8 + result.g;
  moments.central[r * inputs + c] = central;
  const bool diagonal = result.first_piece == result.second_piece && result.g / 2 == result.m;
  if (!diagonal) moments.central[c * inputs + r] = central;
  // Of the two groups on the diagonal the first alone, and one of the lanes of a row.
  if (diagonal && result.g % 2 == 0 && group % 2 == 0 && lane % 4 == 0) {
    moments.mean[r] = static_cast<float>(row_sum * inverse_count);
  }
}

}  // namespace

bool moments_fit(Precision precision, const MomentsShape& shape, int compute_capability_major) {
  return element_bytes(precision) == 2 && compute_capability_major == 9 &&
         has_moments_kernels(shape.inputs) && shape.outputs == moments_widening * shape.inputs;
}

int64_t second_moments_scratch_bytes(const MomentsShape& shape, int multiprocessors) {
  return shape.inputs == 64 ? scratch_bytes<64>(shape.rows, multiprocessors)
                            : scratch_bytes<128>(shape.rows, multiprocessors);
}

void launch_second_moments(Precision precision, const SecondMomentsOperands& operands,
                           const MomentsShape& shape, int multiprocessors, cudaStream_t stream) {
  with_inputs(precision, shape.inputs, [&]<class T, int inputs>() {
    const int chunks = moments_chunks<inputs>(shape.rows, multiprocessors);
    enqueue({dim3(chunks), piece_warps * 32, stream, moments_shared_bytes},
            second_moments_kernel<T, inputs>, operands, shape.rows, Count(shape.rows));
    enqueue({MomentsTeam<inputs>::products, finish_groups * 32, stream},
            finish_moments_kernel<inputs>, operands.partial_sums, chunks,
            1.0 / static_cast<double>(shape.rows), operands.moments);
  });
}

}  // namespace nearmetal::cuda
