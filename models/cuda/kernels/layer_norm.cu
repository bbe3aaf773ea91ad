#include "models/cuda/device/call.h"
#include "models/cuda/kernels/channel_reduction.h"
#include "models/cuda/kernels/layer_norm.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/warp.h"

namespace nearmetal::cuda {
namespace {

// A token for each warp, and blocks so small that the last ones to run leave no multiprocessor
// idle.
constexpr int layer_norm_threads = 128;
constexpr int layer_norm_warps = layer_norm_threads / warp_lanes;

// One token: lane L has packs L, L + 32, ... They stay packed: of 16-bit values each would take a
// register of its own.
template <class T, int packs>
struct Token {
  uint4 of[packs];

  __device__ static bool has(int k, int channels) { return channel(k) < channels; }
  __device__ static int channel(int k) {
    return (k * warp_lanes + static_cast<int>(threadIdx.x) % warp_lanes) * pack_width<T>;
  }
  __device__ static Token load(const T* row, int channels) {
    Token token;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      if (has(k, channels)) token.of[k] = *reinterpret_cast<const uint4*>(row + channel(k));
    }
    return token;
  }
  __device__ Channels<T> floats(int k) const { return floats_of<T>(of[k]); }
  // Makes the code that follows convert the values again, instead of keeping those in fp32.
  __device__ void forget_floats() {
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      asm("" : "+r"(of[k].x), "+r"(of[k].y), "+r"(of[k].z), "+r"(of[k].w));
    }
  }
};

// Calls body(value) for each value of a token in this lane.
template <class T, int packs, class Body>
__device__ void for_each_value(const Token<T, packs>& token, int channels, Body body) {
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    if (!Token<T, packs>::has(k, channels)) break;
    const Channels<T> values = token.floats(k);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) body(values.values[i]);
  }
}

template <class T, int packs>
__global__ void __launch_bounds__(layer_norm_threads)
    layer_norm_kernel(LayerNormForward operands, Extent extent) {
  using Row = Token<T, packs>;
  const int channels = extent.channels;
  const auto count = static_cast<float>(channels);
  const auto epsilon = static_cast<float>(operands.epsilon);
  const int64_t row = int64_t{blockIdx.x} * layer_norm_warps + threadIdx.x / warp_lanes;
  if (row >= extent.rows) return;
  Row x = Row::load(static_cast<const T*>(operands.x) + row * channels, channels);
  float sum = 0;
  for_each_value(x, channels, [&](float value) { sum += value; });
  x.forget_floats();
  const float mean = warp_sum(sum) / count;
  float squares = 0;
  for_each_value(x, channels, [&](float value) {
    const float centred = value - mean;
    squares = fmaf(centred, centred, squares);
  });
  x.forget_floats();
  const float inverse_deviation = rsqrtf(warp_sum(squares) / count + epsilon);
  if (operands.statistics != nullptr && threadIdx.x % warp_lanes == 0) {
    reinterpret_cast<float2*>(operands.statistics)[row] = {mean, inverse_deviation};
  }
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    if (!Row::has(k, channels)) break;
    const auto scale = Channels<T>::load(operands.scale + Row::channel(k));
    const auto bias = Channels<T>::load(operands.bias + Row::channel(k));
    Channels<T> y = x.floats(k);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      y.values[i] = fmaf((y.values[i] - mean) * inverse_deviation, scale.values[i], bias.values[i]);
    }
    store_pack(static_cast<T*>(operands.y) + row * channels + Row::channel(k), from_floats<T>(y));
  }
}

// A group of warps takes two tokens at a time, a pack of each in every lane. So a lane has the same
// few channels of all its tokens, and registers for their sums and for tokens that are on their
// way.
constexpr int tokens_at_once = 2;
constexpr int most_warps = 16;  // of the one block on a multiprocessor
constexpr int most_threads = most_warps * warp_lanes;

// The groups of a block.
struct TokenGroups {
  int warps;  // of a group
  int count;  // one barrier each, of 16, beside that of the block

  TokenGroups(int channels, int width)
      : warps((channels / width + warp_lanes - 1) / warp_lanes),
        count(min(most_warps / warps, most_warps - 1)) {}
  unsigned threads() const { return static_cast<unsigned>(warps * count * warp_lanes); }
};

// What a row needs to be normalised: 0 for one that is not there.
using Statistics = float2;  // mean and inverse deviation

// A lane's packs of the tokens of a group, zeros where there are none. They stay packed until they
// are used: of 16-bit values each would take a register of its own.
template <bool two, bool residual>
struct Tokens {
  uint4 x[tokens_at_once], dy[tokens_at_once];
  uint4 dy_second[two ? tokens_at_once : 1], other[residual ? tokens_at_once : 1];
  Statistics statistics[tokens_at_once];

  template <class T>
  __device__ void load(const LayerNormBackward& operands, const Extent& extent, int64_t first,
                       int channel) {
#pragma unroll
    for (int t = 0; t < tokens_at_once; ++t) {
      const int64_t row = first + t;
      const bool there = row < extent.rows;
      const bool has_pack = there && channel < extent.channels;
      const int64_t at = row * extent.channels + channel;
      x[t] = pack_at<T>(operands.x, at, has_pack);
      dy[t] = pack_at<T>(operands.dy, at, has_pack);
      if constexpr (two) dy_second[t] = pack_at<T>(operands.dy_second, at, has_pack);
      if constexpr (residual) other[t] = pack_at<T>(operands.other, at, has_pack);
      statistics[t] = {0, 0};
      if (there) statistics[t] = reinterpret_cast<const Statistics*>(operands.statistics)[row];
    }
  }

 private:
  template <class T>
  __device__ static uint4 pack_at(const void* tensor, int64_t at, bool there) {
    uint4 pack = {0, 0, 0, 0};
    if (there) pack = *reinterpret_cast<const uint4*>(static_cast<const T*>(tensor) + at);
    return pack;
  }
};

// Sums over the tokens of a lane, for each channel of its pack.
template <class T>
struct ChannelSums {
  Channels<T> scale = {}, bias = {}, dx = {};
};

// Sums over the channels of each token, of g and of g * xhat.
constexpr int row_sum_count = 2 * tokens_at_once;
struct alignas(16) RowSums {
  float values[row_sum_count];
};

// What both passes over a token need of a channel: g = dy * scale, and xhat = (x - mean) /
// deviation.
template <class T>
struct Normalised {
  Channels<T> g, xhat;
};

template <class T, bool two, bool residual>
__device__ Normalised<T> normalise(const Tokens<two, residual>& tokens, int t,
                                   const Channels<T>& scale, ChannelSums<T>& sums,
                                   RowSums& row_sums) {
  const auto [mean, inverse_deviation] = tokens.statistics[t];
  Channels<T> dy = floats_of<T>(tokens.dy[t]);
  if constexpr (two) {
    const Channels<T> second = floats_of<T>(tokens.dy_second[t]);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) dy.values[i] += second.values[i];
  }
  const Channels<T> x = floats_of<T>(tokens.x[t]);
  Normalised<T> result;
#pragma unroll
  for (int i = 0; i < pack_width<T>; ++i) {
    const float xhat = (x.values[i] - mean) * inverse_deviation;
    const float g = dy.values[i] * scale.values[i];
    sums.scale.values[i] = fmaf(dy.values[i], xhat, sums.scale.values[i]);
    sums.bias.values[i] += dy.values[i];
    row_sums.values[2 * t] += g;
    row_sums.values[2 * t + 1] = fmaf(g, xhat, row_sums.values[2 * t + 1]);
    result.g.values[i] = g;
    result.xhat.values[i] = xhat;
  }
  return result;
}

// Every lane of a group gets the sums over all its lanes, in the same order. `shared` has a place
// for each warp of the group; it may be written again after the next such call with another.
__device__ RowSums group_sums(const RowSums& lane_sums, RowSums* shared, int group, int warps) {
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes - group * warps;
  const float sum = warp_sum_of(lane_sums.values);
  if (lane < row_sum_count) shared[warp].values[lane] = sum;
  barrier_sync(1 + group, warps * warp_lanes);
  RowSums total = shared[0];
#pragma unroll 1
  for (int w = 1; w < warps; ++w) {
    const RowSums more = shared[w];
#pragma unroll
    for (int v = 0; v < row_sum_count; ++v) total.values[v] += more.values[v];
  }
  return total;
}

// dx = (g - mean of g - xhat * mean of g * xhat) / deviation.
template <class T>
__device__ Channels<T> gradient(const Normalised<T>& of, float g_mean, float product_mean,
                                float inverse_deviation, const Channels<T>& other,
                                ChannelSums<T>& sums) {
  Channels<T> dx;
#pragma unroll
  for (int i = 0; i < pack_width<T>; ++i) {
    const float centred = fmaf(-of.xhat.values[i], product_mean, of.g.values[i] - g_mean);
    dx.values[i] = fmaf(centred, inverse_deviation, other.values[i]);
    sums.dx.values[i] += dx.values[i];
  }
  return dx;
}

// Values of one of a block's sums for each channel: rounded up.
constexpr int64_t sum_stride(int64_t features) {
  return (features + partial_sums_values - 1) / partial_sums_values * partial_sums_values;
}

// Adds the sums of the groups of a block, in their order, and leaves them.
template <class T>
__device__ void leave_block_sums(const Channels<T>& sums, int channel, int channels, int group,
                                 int groups, float* shared, float* out) {
  __syncthreads();
  if (channel < channels) {
    *reinterpret_cast<Channels<T>*>(shared + group * channels + channel) = sums;
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < channels; at += static_cast<int>(blockDim.x)) {
    float total = shared[at];
    for (int g = 1; g < groups; ++g) total += shared[g * channels + at];
    out[at] = total;
  }
}

template <class T, bool two, bool residual>
__global__ void __launch_bounds__(most_threads, 1)
    layer_norm_backward_kernel(LayerNormBackward operands, Extent extent, TokenGroups groups,
                               int stride) {
  __shared__ RowSums row_sums[2][most_warps];
  __shared__ alignas(16) float block_sums[most_threads * pack_width<T>];
  const int group_threads = groups.warps * warp_lanes;
  const int group = static_cast<int>(threadIdx.x) / group_threads;
  const int channel = static_cast<int>(threadIdx.x) % group_threads * pack_width<T>;
  const float inverse_count = 1 / static_cast<float>(extent.channels);
  const int64_t step = int64_t{gridDim.x} * groups.count * tokens_at_once;
  // Blocks take their turns first, so that each has as many tokens as the others.
  int64_t first = (int64_t{group} * gridDim.x + blockIdx.x) * tokens_at_once;
  Channels<T> scale = {};
  if (channel < extent.channels) scale = Channels<T>::load(operands.scale + channel);
  ChannelSums<T> sums;
  Tokens<two, residual> tokens;
  tokens.template load<T>(operands, extent, first, channel);
  for (int turn = 0; first < extent.rows; first += step, turn ^= 1) {
    RowSums lane_sums = {};
    Normalised<T> normalised[tokens_at_once];
    uint4 other[tokens_at_once] = {};
    float inverse_deviation[tokens_at_once];
#pragma unroll
    for (int t = 0; t < tokens_at_once; ++t) {
      normalised[t] = normalise<T>(tokens, t, scale, sums, lane_sums);
      if constexpr (residual) other[t] = tokens.other[t];
      inverse_deviation[t] = tokens.statistics[t].y;
    }
    // The next tokens are on their way while the group sums up.
    tokens.template load<T>(operands, extent, first + step, channel);
    const RowSums total =
        group_sums(lane_sums, row_sums[turn] + group * groups.warps, group, groups.warps);
#pragma unroll
    for (int t = 0; t < tokens_at_once; ++t) {
      Channels<T> added = {};
      if constexpr (residual) added = floats_of<T>(other[t]);
      const Channels<T> dx =
          gradient<T>(normalised[t], total.values[2 * t] * inverse_count,
                      total.values[2 * t + 1] * inverse_count, inverse_deviation[t], added, sums);
      const int64_t row = first + t;
      if (row < extent.rows && channel < extent.channels) {
        store_pack(static_cast<T*>(operands.dx) + row * extent.channels + channel,
                   from_floats<T>(dx));
      }
    }
  }
  float* out = operands.partial_sums + int64_t{blockIdx.x} * operands.sum_count() * stride;
  const auto leave = [&](const Channels<T>& of, int place) {
    leave_block_sums<T>(of, channel, extent.channels, group, groups.count, block_sums,
                        out + place * stride);
  };
  leave(sums.scale, 0);
  leave(sums.bias, 1);
  if (operands.sums_dx) leave(sums.dx, 2);
}

// A block has 32 channels of one of the sums of a layer norm.
__global__ void __launch_bounds__(partial_sums_threads)
    layer_norm_sums_kernel(const __grid_constant__ LayerNormSumsList list) {
  const LayerNormSums& of = list.sums[blockIdx.y];
  float* gradient = of.gradients[blockIdx.z];
  const int first = static_cast<int>(blockIdx.x) * partial_sums_values;
  if (gradient == nullptr || first >= of.channels) return;
  const auto stride = static_cast<int>(sum_stride(of.channels));
  const int sums = of.gradients[most_layer_norm_sums - 1] == nullptr ? most_layer_norm_sums - 1
                                                                     : most_layer_norm_sums;
  const float sum = sum_of_blocks(of.partial_sums, of.blocks, sums * stride,
                                  static_cast<int>(blockIdx.z) * stride + first);
  const int channel = first + static_cast<int>(threadIdx.x);
  if (threadIdx.x < partial_sums_values && channel < of.channels) gradient[channel] = sum;
}

TokenGroups token_groups(Precision precision, Extent extent) {
  return {extent.channels, 16 / static_cast<int>(element_bytes(precision))};
}

}  // namespace

void launch_layer_norm(Precision precision, const LayerNormForward& operands, Extent extent,
                       cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const auto launch = [&]<int packs>() {
      enqueue({blocks_for(extent.rows, layer_norm_warps), layer_norm_threads, stream},
              layer_norm_kernel<T, packs>, operands, extent);
    };
    // As many packs as a lane has of a token, or more: those of the widths of our networks, 128,
    // 768 and 1,024, and of the widest tokens.
    constexpr int lanes_packs = warp_lanes * pack_width<T>;
    const auto fits = [&](int width) { return extent.channels <= width; };
    if (fits(lanes_packs)) return launch.template operator()<1>();
    if (fits(768)) return launch.template operator()<768 / lanes_packs>();
    if (fits(1024)) return launch.template operator()<1024 / lanes_packs>();
    if constexpr (lanes_packs > 128) launch.template operator()<2048 / lanes_packs>();
  });
}

int layer_norm_backward_blocks(Precision precision, Extent extent, int multiprocessors) {
  const int64_t tokens = int64_t{token_groups(precision, extent).count} * tokens_at_once;
  return static_cast<int>(
      min(blocks_for(extent.rows, tokens), static_cast<unsigned>(multiprocessors)));
}

int64_t layer_norm_sums_bytes(Precision precision, Extent extent, bool sums_dx,
                              int multiprocessors) {
  return layer_norm_backward_blocks(precision, extent, multiprocessors) *
         sum_stride(extent.channels) * LayerNormBackward{.sums_dx = sums_dx}.sum_count() *
         static_cast<int64_t>(sizeof(float));
}

void launch_layer_norm_backward(Precision precision, const LayerNormBackward& operands,
                                Extent extent, int multiprocessors, cudaStream_t stream) {
  const auto stride = static_cast<int>(sum_stride(extent.channels));
  const TokenGroups groups = token_groups(precision, extent);
  const dim3 blocks(layer_norm_backward_blocks(precision, extent, multiprocessors));
  const bool two = operands.dy_second != nullptr, residual = operands.other != nullptr;
  if (two && residual) no_kernel("two gradients of a layer norm and that of a residual");
  with_element_type(precision, [&]<class T>() {
    const auto kernel = two        ? layer_norm_backward_kernel<T, true, false>
                        : residual ? layer_norm_backward_kernel<T, false, true>
                                   : layer_norm_backward_kernel<T, false, false>;
    enqueue({blocks, groups.threads(), stream}, kernel, operands, extent, groups, stride);
  });
}

void launch_layer_norm_sums(const LayerNormSumsList& list, cudaStream_t stream) {
  int channels = 0;
  for (int i = 0; i < list.count; ++i) channels = max(channels, list.sums[i].channels);
  const dim3 grid(blocks_for(channels, partial_sums_values), static_cast<unsigned>(list.count),
                  most_layer_norm_sums);
  enqueue({grid, partial_sums_threads, stream}, layer_norm_sums_kernel, list);
}

}  // namespace nearmetal::cuda
