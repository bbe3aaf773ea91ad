#include "models/cuda/device/call.h"
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

// Calls body.operator()<T, packs>() with as many packs as a lane has of a token, or more: those of
// the widths of our networks, 128, 768 and 1,024, and of the widest tokens.
template <class Body>
void with_packs(Precision precision, int64_t channels, Body&& body) {
  with_element_type(precision, [&]<class T>() {
    constexpr int lanes_packs = warp_lanes * pack_width<T>;
    const auto fits = [&](int width) { return channels <= width; };
    if (fits(lanes_packs)) return body.template operator()<T, 1>();
    if (fits(768)) return body.template operator()<T, 768 / lanes_packs>();
    if (fits(1024)) return body.template operator()<T, 1024 / lanes_packs>();
    if constexpr (lanes_packs > 128) body.template operator()<T, 2048 / lanes_packs>();
  });
}

}  // namespace

void launch_layer_norm(Precision precision, const LayerNormForward& operands, Extent extent,
                       cudaStream_t stream) {
  with_packs(precision, extent.channels, [&]<class T, int packs>() {
    layer_norm_kernel<T, packs>
        <<<blocks_for(extent.rows, layer_norm_warps), layer_norm_threads, 0, stream>>>(operands,
                                                                                       extent);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
