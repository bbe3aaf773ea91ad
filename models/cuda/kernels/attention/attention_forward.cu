#include "models/cuda/device/call.h"
#include "models/cuda/kernels/attention/attention.h"
#include "models/cuda/kernels/attention/tiles.h"

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

template <class T, int d>
__device__ void attend(const AttentionExtent& extent, const AttentionForward& operands,
                       float factor) {
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
}

#endif  // NM_HAS_COPY_ASYNC

template <class T, int d>
__global__ void __launch_bounds__(most_attention_warps* warp_lanes, 2)
    attention_kernel(AttentionExtent extent, AttentionForward operands, float factor) {
#ifdef NM_HAS_COPY_ASYNC
  attend<T, d>(extent, operands, factor);
#else
  __trap();
#endif
}

}  // namespace

void launch_attention(Precision precision, const AttentionExtent& extent,
                      const AttentionForward& operands, cudaStream_t stream) {
  const AttentionGrid blocks(extent);
  const float factor = log2_e / std::sqrt(static_cast<float>(extent.head_features));
  with_16_bit_type(precision, [&]<class T>() {
    constexpr int d = attention_features;
    attention_kernel<T, d><<<blocks.grid, blocks.threads, 0, stream>>>(extent, operands, factor);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
