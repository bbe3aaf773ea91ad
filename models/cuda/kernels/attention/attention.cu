#include "models/cuda/kernels/attention/attention.h"
#include "models/cuda/kernels/attention/tiles.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/warp.h"

namespace nearmetal::cuda {
namespace {

#ifdef NM_HAS_COPY_ASYNC

// Over the four lanes that share a row.
template <class Combine>
__device__ float over_row(float value, Combine combine) {
  value = combine(value, __shfl_xor_sync(0xffffffff, value, 1));
  return combine(value, __shfl_xor_sync(0xffffffff, value, 2));
}

// The softmax of a strip's two rows of each lane, tile by tile: sums of exponentials relative to
// the largest score so far.
template <class T, int d>
struct RunningSoftmax {
  float largest[2] = {-INFINITY, -INFINITY};
  float sums[2] = {};  // of this lane's own columns
  float values[d / 8][4] = {};

  // Takes one tile of scores and of `v`; `factor` is that of the scores, for exponentials of 2.
  template <bool full>
  __device__ void add(Block (&scores)[tile_blocks], int blocks, const AttentionTile<T, d>& v,
                      float factor) {
    float shift[2];
    rescale<full>(scores, blocks, factor, shift);
#pragma unroll
    for (int j = 0; j < tile_blocks; ++j) {
      if (!full && j >= blocks) break;
      for_each_element([&](int part, int half, int, int index) {
        float& score = scores[j].of[part][index];
        score = power_of_2(fmaf(score, factor, -shift[half]));
        sums[half] += score;
      });
      uint32_t weights[4];
      scores[j].template round<T>(weights);
      add_weighted<T, d>(values, weights, v + j * strip_rows);
    }
  }

 private:
  // fmaxf drops a NaN; the sums do not.
  template <bool full>
  __device__ void rescale(const Block (&scores)[tile_blocks], int blocks, float factor,
                          float (&shift)[2]) {
    float highest[2] = {largest[0], largest[1]};
#pragma unroll
    for (int j = 0; j < tile_blocks; ++j) {
      if (!full && j >= blocks) break;
      for_each_element([&](int part, int half, int, int index) {
        highest[half] = fmaxf(highest[half], scores[j].of[part][index]);
      });
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = over_row(highest[half], [](float a, float b) { return fmaxf(a, b); });
      const float keep = power_of_2((largest[half] - highest[half]) * factor);
      sums[half] *= keep;
#pragma unroll
      for (int n = 0; n < d / 8; ++n) {
        values[n][half * 2] *= keep;
        values[n][half * 2 + 1] *= keep;
      }
      largest[half] = highest[half];
      shift[half] = highest[half] * factor;
    }
  }
};

#endif  // NM_HAS_COPY_ASYNC

template <class T, int d>
__global__ void __launch_bounds__(most_attention_warps* warp_lanes, 2)
    attention_kernel(AttentionExtent extent, AttentionForward operands, float factor) {
#ifdef NM_HAS_COPY_ASYNC
  __shared__ alignas(16) AttentionTile<T, d> keys[2], values[2];
  const auto* packed = static_cast<const T*>(operands.packed);
  const auto k = head_rows(extent, packed, 3, 1), v = head_rows(extent, packed, 3, 2);
  const auto copy = [&](int tile) {
    copy_tile<T, d>(keys[tile % 2], k, tile * tile_rows);
    copy_tile<T, d>(values[tile % 2], v, tile * tile_rows);
  };
  copy(0);
  cp_async_commit_group();
  const int first = first_strip_row(), tokens = k.count;
  const Strip<T, d> q(head_rows(extent, packed, 3, 0), first);
  RunningSoftmax<T, d> softmax;
  const int tiles = (tokens + tile_rows - 1) / tile_rows;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) copy(tile + 1);
    cp_async_commit_group();
    cp_async_wait_group<1>();
    __syncthreads();
    const int left = first < tokens ? tokens - tile * tile_rows : 0;
    with_tile(left, [&]<bool full>() {
      const int blocks = min(tile_blocks, (left + strip_rows - 1) / strip_rows);
      Block scores[tile_blocks];
#pragma unroll
      for (int j = 0; j < tile_blocks; ++j) {
        if (!full && j >= blocks) break;
        scores[j] = by_rows<T, d>(q, keys[tile % 2] + j * strip_rows);
        if (full || left >= (j + 1) * strip_rows) continue;
        for_each_element([&](int part, int, int column, int index) {
          if (j * strip_rows + column >= left) scores[j].of[part][index] = -INFINITY;
        });
      }
      softmax.template add<full>(scores, blocks, values[tile % 2], factor);
    });
    __syncthreads();
  }
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = over_row(softmax.sums[half], [](float a, float b) { return a + b; });
    inverse[half] = 1 / sum;
    const int row = first + lane_of_warp() / 4 + half * 8;
    if (operands.log_sums == nullptr || lane_of_warp() % 4 != 0 || row >= tokens) continue;
    operands.log_sums[int64_t{blockIdx.x} * tokens + row] =
        (softmax.largest[half] * factor + log2f(sum)) / log2_e;
  }
  store_strip<T, d>(head_rows(extent, static_cast<T*>(operands.y), 1, 0), first, softmax.values,
                    inverse);
#else
  __trap();
#endif
}

// dots [batch, heads, tokens] = sums over the features of a head of y * dy. As many lanes as a head
// has packs have a row of it.
template <class T>
__global__ void __launch_bounds__(piece_threads)
    dots_kernel(AttentionExtent extent, const T* y, const T* dy, float* dots) {
  constexpr int width = pack_width<T>;
  const int lanes = static_cast<int>(extent.head_features) / width;
  const int64_t pack = int64_t{blockIdx.x} * piece_threads + threadIdx.x;
  const int64_t row = pack / lanes;  // of [batch, tokens, heads]
  const bool inside = row < extent.rows();
  float sum = 0;
  if (inside) {
    const Channels<T> values = to_floats(load_pack(y + pack * width));
    const Channels<T> gradients = to_floats(load_pack(dy + pack * width));
#pragma unroll
    for (int i = 0; i < width; ++i) sum = fmaf(values.values[i], gradients.values[i], sum);
  }
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  }
  if (!inside || pack % lanes != 0) return;
  const int64_t head = row % extent.heads, token = row / extent.heads % extent.tokens;
  const int64_t sample = row / extent.heads / extent.tokens;
  dots[(sample * extent.heads + head) * extent.tokens + token] = sum;
}

#ifdef NM_HAS_COPY_ASYNC

// log2 of the sums of exponentials, and y * dy, of queries; behind the last such that every
// probability is 0.
struct QueryStatistics {
  const float* log_sums;
  const float* dots;
  int count;

  __device__ QueryStatistics(const AttentionExtent& extent, const AttentionBackward& operands)
      : log_sums(operands.log_sums + blockIdx.x * extent.tokens),
        dots(operands.dots + blockIdx.x * extent.tokens),
        count(static_cast<int>(extent.tokens)) {}
  __device__ float2 of(int query) const {
    if (query >= count) return {INFINITY, 0};
    return {log_sums[query] * log2_e, dots[query]};
  }
};

// From scores and the gradients of probabilities, both of one block, to probabilities and the
// gradients of scores, but for their factor. statistics(half, column): of the query.
template <class Statistics>
__device__ void block_gradient(Block& scores, Block& gradients, float factor,
                               Statistics statistics) {
  for_each_element([&](int part, int half, int column, int index) {
    const float2 query = statistics(half, column);
    float& score = scores.of[part][index];
    float& gradient = gradients.of[part][index];
    score = power_of_2(fmaf(score, factor, -query.x));
    gradient = score * (gradient - query.y);
  });
}

#endif  // NM_HAS_COPY_ASYNC

// A strip of queries, and all keys: the gradient of q.
template <class T, int d>
__global__ void __launch_bounds__(most_attention_warps* warp_lanes, 2)
    attention_backward_queries_kernel(AttentionExtent extent, AttentionBackward operands,
                                      float factor) {
#ifdef NM_HAS_COPY_ASYNC
  __shared__ alignas(16) AttentionTile<T, d> keys[2], values[2];
  const auto* packed = static_cast<const T*>(operands.packed);
  const auto k = head_rows(extent, packed, 3, 1), v = head_rows(extent, packed, 3, 2);
  const auto copy = [&](int tile) {
    copy_tile<T, d>(keys[tile % 2], k, tile * tile_rows);
    copy_tile<T, d>(values[tile % 2], v, tile * tile_rows);
  };
  copy(0);
  cp_async_commit_group();
  const int first = first_strip_row(), tokens = k.count;
  const Strip<T, d> q(head_rows(extent, packed, 3, 0), first);
  const Strip<T, d> dy(head_rows(extent, static_cast<const T*>(operands.dy), 1, 0), first);
  const QueryStatistics statistics(extent, operands);
  const int row = first + lane_of_warp() / 4;
  const float2 of_rows[2] = {statistics.of(row), statistics.of(row + 8)};
  float dq[d / 8][4] = {};
  const int tiles = (tokens + tile_rows - 1) / tile_rows;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) copy(tile + 1);
    cp_async_commit_group();
    cp_async_wait_group<1>();
    __syncthreads();
    const int left = first < tokens ? tokens - tile * tile_rows : 0;
    with_tile(left, [&]<bool full>() {
#pragma unroll(full ? 2 : 1)
      for (int j = 0; j < tile_blocks; ++j) {
        if (!full && j * strip_rows >= left) break;
        Block scores = by_rows<T, d>(q, keys[tile % 2] + j * strip_rows);
        Block gradients = by_rows<T, d>(dy, values[tile % 2] + j * strip_rows);
        block_gradient(scores, gradients, factor, [&](int half, int column) {
          // Behind the last key no probability is left.
          const float2 of_row = of_rows[half];
          return float2{full || j * strip_rows + column < left ? of_row.x : INFINITY, of_row.y};
        });
        uint32_t weights[4];
        gradients.round<T>(weights);
        add_weighted<T, d>(dq, weights, keys[tile % 2] + j * strip_rows);
      }
    });
    __syncthreads();
  }
  const float by = factor / log2_e;
  store_strip<T, d>(head_rows(extent, static_cast<T*>(operands.packed_gradient), 3, 0), first, dq,
                    {by, by});
#else
  __trap();
#endif
}

// A strip of keys with their values, and all queries: the gradients of k and v. Scores are those of
// the other kernel, transposed.
template <class T, int d>
__global__ void __launch_bounds__(most_attention_warps* warp_lanes, 2)
    attention_backward_keys_kernel(AttentionExtent extent, AttentionBackward operands,
                                   float factor) {
#ifdef NM_HAS_COPY_ASYNC
  __shared__ alignas(16) AttentionTile<T, d> queries[2], gradients_of_y[2];
  __shared__ float2 statistics[2][tile_rows];
  const auto* packed = static_cast<const T*>(operands.packed);
  const auto q = head_rows(extent, packed, 3, 0);
  const auto dy = head_rows(extent, static_cast<const T*>(operands.dy), 1, 0);
  const QueryStatistics all_statistics(extent, operands);
  const auto copy = [&](int tile) {
    copy_tile<T, d>(queries[tile % 2], q, tile * tile_rows);
    copy_tile<T, d>(gradients_of_y[tile % 2], dy, tile * tile_rows);
    for (int i = static_cast<int>(threadIdx.x); i < tile_rows; i += blockDim.x) {
      statistics[tile % 2][i] = all_statistics.of(tile * tile_rows + i);
    }
  };
  copy(0);
  cp_async_commit_group();
  const int first = first_strip_row(), tokens = q.count;
  const Strip<T, d> k(head_rows(extent, packed, 3, 1), first);
  const Strip<T, d> v(head_rows(extent, packed, 3, 2), first);
  float dk[d / 8][4] = {}, dv[d / 8][4] = {};
  const int tiles = (tokens + tile_rows - 1) / tile_rows;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) copy(tile + 1);
    cp_async_commit_group();
    cp_async_wait_group<1>();
    __syncthreads();
    const int left = first < tokens ? tokens - tile * tile_rows : 0;
    // No two at once: their registers would not do.
#pragma unroll 1
    for (int j = 0; j < tile_blocks; ++j) {
      if (j * strip_rows >= left) break;
      Block scores = by_rows<T, d>(k, queries[tile % 2] + j * strip_rows);
      Block gradients = by_rows<T, d>(v, gradients_of_y[tile % 2] + j * strip_rows);
      block_gradient(scores, gradients, factor, [&](int, int column) {
        return statistics[tile % 2][j * strip_rows + column];
      });
      uint32_t weights[4];
      scores.round<T>(weights);
      add_weighted<T, d>(dv, weights, gradients_of_y[tile % 2] + j * strip_rows);
      gradients.round<T>(weights);
      add_weighted<T, d>(dk, weights, queries[tile % 2] + j * strip_rows);
    }
    __syncthreads();
  }
  auto* out = static_cast<T*>(operands.packed_gradient);
  const float by = factor / log2_e;
  store_strip<T, d>(head_rows(extent, out, 3, 1), first, dk, {by, by});
  store_strip<T, d>(head_rows(extent, out, 3, 2), first, dv, {1, 1});
#else
  __trap();
#endif
}

// The row of this warp.
__device__ int64_t warp_row() {
  return int64_t{blockIdx.x} * (piece_threads / warp_lanes) + threadIdx.x / warp_lanes;
}
__device__ int warp_lane() { return static_cast<int>(threadIdx.x) % warp_lanes; }

template <class T>
__global__ void softmax_kernel(SoftmaxShape shape, const float* scores, float factor,
                               T* probabilities) {
  const int64_t row = warp_row();
  if (row >= shape.rows) return;
  const float* in = scores + row * shape.row_elements;
  T* out = probabilities + row * shape.row_elements;
  float largest = -INFINITY;
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) largest = fmaxf(largest, in[i]);
  largest = warp_max(largest);
  // fmaxf drops a NaN; the sum does not.
  float sum = 0;
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) {
    sum += expf(factor * (in[i] - largest));
  }
  const float inverse = 1 / warp_sum(sum);
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) {
    out[i] = from_float<T>(expf(factor * (in[i] - largest)) * inverse);
  }
}

template <class T>
__global__ void softmax_backward_kernel(SoftmaxShape shape, const T* probabilities,
                                        const float* gradient, float factor, T* score_gradient) {
  const int64_t row = warp_row();
  if (row >= shape.rows) return;
  const int64_t at = row * shape.row_elements;
  float sum = 0;
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) {
    sum = fmaf(to_float(probabilities[at + i]), gradient[at + i], sum);
  }
  sum = warp_sum(sum);
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) {
    const float p = to_float(probabilities[at + i]);
    score_gradient[at + i] = from_float<T>(factor * p * (gradient[at + i] - sum));
  }
}

}  // namespace

void launch_attention(Precision precision, const AttentionExtent& extent,
                      const AttentionForward& operands, cudaStream_t stream) {
  const AttentionGrid blocks(extent);
  const float factor = log2_e / std::sqrt(static_cast<float>(extent.head_features));
  with_16_bit_type(precision, [&]<class T>() {
    constexpr int d = attention_features;
    enqueue({blocks.grid, blocks.threads, stream}, attention_kernel<T, d>, extent, operands,
            factor);
  });
}

void launch_attention_backward(Precision precision, const AttentionExtent& extent,
                               const AttentionBackward& operands, cudaStream_t stream) {
  const AttentionGrid blocks(extent);
  const float factor = log2_e / std::sqrt(static_cast<float>(extent.head_features));
  with_16_bit_type(precision, [&]<class T>() {
    constexpr int d = attention_features;
    const int64_t packs = extent.rows() * d / pack_width<T>;
    enqueue(each_piece(packs, stream), dots_kernel<T>, extent, operands.y, operands.dy,
            operands.dots);
    enqueue({blocks.grid, blocks.threads, stream}, attention_backward_keys_kernel<T, d>, extent,
            operands, factor);
    enqueue({blocks.grid, blocks.threads, stream}, attention_backward_queries_kernel<T, d>, extent,
            operands, factor);
  });
}

void launch_softmax(Precision precision, const SoftmaxShape& shape, const float* scores,
                    float factor, void* probabilities, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    enqueue(each_piece(shape.rows * warp_lanes, stream), softmax_kernel<T>, shape, scores, factor,
            probabilities);
  });
}

void launch_softmax_backward(Precision precision, const SoftmaxShape& shape,
                             const void* probabilities, const float* gradient, float factor,
                             void* score_gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    enqueue(each_piece(shape.rows * warp_lanes, stream), softmax_backward_kernel<T>, shape,
            probabilities, gradient, factor, score_gradient);
  });
}

}  // namespace nearmetal::cuda
