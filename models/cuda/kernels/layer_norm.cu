#include <algorithm>

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/layer_norm.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/partial_sums.h"
#include "models/cuda/kernels/warp.h"

namespace nearmetal::cuda {
namespace {

constexpr int layer_norm_threads = 256;
constexpr int layer_norm_warps = layer_norm_threads / warp_lanes;
constexpr int forward_blocks = 6;   // on a multiprocessor
constexpr int backward_blocks = 2;  // at most; each leaves partial sums

// The backward pass holds two sums for each channel in registers.
template <class T, int packs>
constexpr int backward_blocks_of = packs* pack_width<T> > 24 ? 1 : backward_blocks;

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
  __device__ Channels<T> floats(int k) const {
    return to_floats(*reinterpret_cast<const Pack<T>*>(&of[k]));
  }
  // Makes the code that follows convert the values again, instead of keeping those in fp32.
  __device__ void forget_floats() {
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      asm("" : "+r"(of[k].x), "+r"(of[k].y), "+r"(of[k].z), "+r"(of[k].w));
    }
  }
  __device__ void add(const Token& other, int channels) {
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      if (!has(k, channels)) break;
      Channels<T> sum = floats(k);
      const Channels<T> added = other.floats(k);
#pragma unroll
      for (int i = 0; i < pack_width<T>; ++i) sum.values[i] += added.values[i];
      const Pack<T> packed = from_floats<T>(sum);
      of[k] = *reinterpret_cast<const uint4*>(&packed);
    }
  }
};

// Calls body(k, i) for each value of this lane.
template <class T, int packs, class Body>
__device__ void for_each_value(int channels, Body body) {
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    if (!Token<T, packs>::has(k, channels)) break;
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) body(k, i);
  }
}

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
  const int64_t step = int64_t{gridDim.x} * layer_norm_warps;
  int64_t row = int64_t{blockIdx.x} * layer_norm_warps + threadIdx.x / warp_lanes;
  for (; row < extent.rows; row += step) {
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
        y.values[i] =
            fmaf((y.values[i] - mean) * inverse_deviation, scale.values[i], bias.values[i]);
      }
      store_pack(static_cast<T*>(operands.y) + row * channels + Row::channel(k), from_floats<T>(y));
    }
  }
}

// Two sums for each channel, of one lane over its rows.
template <class T, int packs>
struct ChannelSums {
  Channels<T> scale[packs] = {}, bias[packs] = {};
};

// dx of one token, of which this warp has x and dy. xhat = (x - mean) / deviation, g = dy * scale:
// dx = (g - mean of g - xhat * mean of g * xhat) / deviation.
template <class T, int packs>
__device__ void token_gradient(const LayerNormBackward& operands, int64_t row, int channels,
                               ChannelSums<T, packs>& sums) {
  using Row = Token<T, packs>;
  const int64_t at = row * channels;
  Row x = Row::load(static_cast<const T*>(operands.x) + at, channels);
  Row dy = Row::load(static_cast<const T*>(operands.dy) + at, channels);
  if (operands.dy_second != nullptr) {
    dy.add(Row::load(static_cast<const T*>(operands.dy_second) + at, channels), channels);
  }
  const auto [mean, inverse_deviation] = reinterpret_cast<const float2*>(operands.statistics)[row];
  const T* other = static_cast<const T*>(operands.other);
  Row added;
  if (other != nullptr) added = Row::load(other + at, channels);
  float sum = 0, product_sum = 0;
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    if (!Row::has(k, channels)) break;
    const auto scale = Channels<T>::load(operands.scale + Row::channel(k));
    const Channels<T> values = x.floats(k), gradients = dy.floats(k);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      const float gradient = gradients.values[i];
      const float xhat = (values.values[i] - mean) * inverse_deviation;
      sums.scale[k].values[i] = fmaf(gradient, xhat, sums.scale[k].values[i]);
      sums.bias[k].values[i] += gradient;
      const float g = gradient * scale.values[i];
      sum += g;
      product_sum = fmaf(g, xhat, product_sum);
    }
  }
  const auto count = static_cast<float>(channels);
  x.forget_floats();
  dy.forget_floats();
  const float g_mean = warp_sum(sum) / count, product_mean = warp_sum(product_sum) / count;
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    if (!Row::has(k, channels)) break;
    const auto scale = Channels<T>::load(operands.scale + Row::channel(k));
    Channels<T> dx = {};
    if (other != nullptr) dx = added.floats(k);
    const Channels<T> values = x.floats(k), gradients = dy.floats(k);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      const float g = gradients.values[i] * scale.values[i];
      const float xhat = (values.values[i] - mean) * inverse_deviation;
      dx.values[i] += (g - g_mean - xhat * product_mean) * inverse_deviation;
    }
    store_pack(static_cast<T*>(operands.dx) + at + Row::channel(k), from_floats<T>(dx));
  }
}

// Values of a block's partial sums of the scale, and of the bias: rounded up.
constexpr int64_t sum_stride(int64_t features) {
  return (features + partial_sums_values - 1) / partial_sums_values * partial_sums_values;
}

// Adds the sums of the warps of a block, in their order, and leaves them for the last kernel.
template <class T, int packs>
__device__ void leave_block_sums(Channels<T> (&sums)[packs], int channels, float* shared,
                                 float* out) {
  using Row = Token<T, packs>;
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  for (int turn = 0; turn < layer_norm_warps; ++turn) {
    if (turn == warp) {
      for_each_value<T, packs>(channels, [&](int k, int i) {
        float& total = shared[Row::channel(k) + i];
        total = turn == 0 ? sums[k].values[i] : total + sums[k].values[i];
      });
    }
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < channels; i += layer_norm_threads) {
    out[i] = shared[i];
  }
  __syncthreads();
}

template <class T, int packs>
__global__ void __launch_bounds__(layer_norm_threads, backward_blocks_of<T, packs>)
    layer_norm_backward_kernel(LayerNormBackward operands, Extent extent, int stride) {
  __shared__ float shared[packs * warp_lanes * pack_width<T>];
  ChannelSums<T, packs> sums;
  const int64_t step = int64_t{gridDim.x} * layer_norm_warps;
  int64_t row = int64_t{blockIdx.x} * layer_norm_warps + threadIdx.x / warp_lanes;
  for (; row < extent.rows; row += step) {
    token_gradient<T, packs>(operands, row, extent.channels, sums);
  }
  float* out = operands.partial_sums + int64_t{blockIdx.x} * 2 * stride;
  leave_block_sums<T, packs>(sums.scale, extent.channels, shared, out);
  leave_block_sums<T, packs>(sums.bias, extent.channels, shared, out + stride);
}

// Calls body.operator()<T, packs>() with as many packs as a lane has of a token.
template <class Body>
void with_packs(Precision precision, int64_t channels, Body&& body) {
  with_element_type(precision, [&]<class T>() {
    const int64_t lanes_packs = warp_lanes * pack_width<T>;
    switch ((channels + lanes_packs - 1) / lanes_packs) {
      case 1:
        return body.template operator()<T, 1>();
      case 2:
        return body.template operator()<T, 2>();
      case 3:
        return body.template operator()<T, 3>();
      case 4:
        return body.template operator()<T, 4>();
      case 5:
      case 6:
        return body.template operator()<T, 6>();
      default:
        return body.template operator()<T, 8>();
    }
  });
}

unsigned blocks_of(const Extent& extent, int most) {
  return std::min(blocks_for(extent.rows, layer_norm_warps), static_cast<unsigned>(most));
}

}  // namespace

void launch_layer_norm(Precision precision, const LayerNormForward& operands, Extent extent,
                       int multiprocessors, cudaStream_t stream) {
  with_packs(precision, extent.channels, [&]<class T, int packs>() {
    layer_norm_kernel<T, packs>
        <<<blocks_of(extent, multiprocessors * forward_blocks), layer_norm_threads, 0, stream>>>(
            operands, extent);
  });
  NM_CHECK_LAUNCH();
}

int64_t layer_norm_scratch_bytes(int64_t features, int multiprocessors) {
  return int64_t{multiprocessors} * backward_blocks * 2 * sum_stride(features) *
         static_cast<int64_t>(sizeof(float));
}

void launch_layer_norm_backward(Precision precision, const LayerNormBackward& operands,
                                Extent extent, int multiprocessors, cudaStream_t stream) {
  const auto stride = static_cast<int>(sum_stride(extent.channels));
  unsigned blocks = 0;
  with_packs(precision, extent.channels, [&]<class T, int packs>() {
    blocks = blocks_of(extent, multiprocessors * backward_blocks_of<T, packs>);
    layer_norm_backward_kernel<T, packs>
        <<<blocks, layer_norm_threads, 0, stream>>>(operands, extent, stride);
  });
  NM_CHECK_LAUNCH();
  const NormGradients gradients(operands.scale_gradient, operands.bias_gradient, extent.channels,
                                stride);
  add_partial_sums(operands.partial_sums, static_cast<int>(blocks), 2 * stride, gradients.place,
                   gradients.first, stream);
}

}  // namespace nearmetal::cuda
