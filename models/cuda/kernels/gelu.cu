#include "models/cuda/device/call.h"
#include "models/cuda/kernels/gelu.h"
#include "models/cuda/kernels/gradient_sweep.h"

namespace nearmetal::cuda {
namespace {

constexpr int gelu_unroll = 4;
constexpr int gelu_blocks = 4;  // on a multiprocessor, all at once

constexpr float density_at_0 = 0.398942280f;  // of the standard normal distribution

// Powers and reciprocals without denormal results: one instruction each.
__device__ float fast_power_of_2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
__device__ float fast_reciprocal(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}

// The standard normal distribution, for fp32 tensors.
__device__ float distribution(float x) { return 0.5f * erfcf(-0.707106781f * x); }

// exp(-x^2 / 2) for 16-bit tensors, and the factor that makes it the part of the standard normal
// distribution beyond |x|: Abramowitz and Stegun, 7.1.26, within 1e-7, since the accurate erff()
// takes longer than the memory.
struct Tail {
  float bell, factor;

  __device__ explicit Tail(float x) {
    constexpr float inverse_root_of_2 = 0.707106781f, half_log2_of_e = 0.721347520f;
    bell = fast_power_of_2(x * x * -half_log2_of_e);
    const float t = fast_reciprocal(fmaf(0.3275911f * inverse_root_of_2, fabsf(x), 1.0f));
    float sum = fmaf(0.5f * 1.061405429f, t, 0.5f * -1.453152027f);
    sum = fmaf(sum, t, 0.5f * 1.421413741f);
    sum = fmaf(sum, t, 0.5f * -0.284496736f);
    sum = fmaf(sum, t, 0.5f * 0.254829592f);
    factor = sum * t;
  }
};

// A NaN stays one, and an infinite x becomes one.
template <class T>
__device__ float gelu(float x) {
  if constexpr (sizeof(T) == sizeof(float)) return x * distribution(x);
  const Tail tail(x);
  return fmaf(-fabsf(x) * tail.bell, tail.factor, fmaxf(x, 0.0f));
}

// d gelu(x) / dx = distribution function + x * density.
template <class T>
__device__ float gelu_slope(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return fmaf(x, density_at_0 * expf(-0.5f * x * x), distribution(x));
  }
  const Tail tail(x);
  const float of_negative = tail.bell * fmaf(-density_at_0, fabsf(x), tail.factor);
  return x < 0 ? of_negative : 1 - of_negative;
}

template <class T>
__global__ void __launch_bounds__(sweep_threads, gelu_blocks)
    gelu_kernel(const T* x, const float* bias, T* y, Extent extent, SweepShape shape) {
  constexpr int unroll = gelu_unroll, width = pack_width<T>;
  const SweepPosition position(shape, extent, width);
  if (!position.active) return;
  Channels<T> added = {};
  if (bias != nullptr) added = Channels<T>::load(bias + position.channel);
  sweep_backwards<unroll>(position, extent, [&](const int64_t(&at)[unroll], int count) {
    Pack<T> packs[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (u < count) packs[u] = load_pack(x + at[u]);
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (u >= count) break;
      Channels<T> values = to_floats(packs[u]);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        values.values[i] = gelu<T>(values.values[i] + added.values[i]);
      }
      store_pack(y + at[u], from_floats<T>(values));
    }
  });
}

template <class T>
struct GeluSource {
  static constexpr int unroll = 2, blocks = 2;
  const T* dy;
  const T* x;
  const float* bias;
  Channels<T> added = {};

  // Packed: of 16-bit values each would take a register of its own.
  struct Loaded {
    uint4 dy, x;
  };
  __device__ void begin(int channel) {
    if (bias != nullptr) added = Channels<T>::load(bias + channel);
  }
  __device__ Loaded load(int64_t row, int channels, int channel) const {
    const int64_t at = row * channels + channel;
    return {*reinterpret_cast<const uint4*>(dy + at), *reinterpret_cast<const uint4*>(x + at)};
  }
  __device__ Channels<T> values(const Loaded& loaded) const {
    Channels<T> gradient = floats_of<T>(loaded.dy);
    const Channels<T> before = floats_of<T>(loaded.x);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      gradient.values[i] *= gelu_slope<T>(before.values[i] + added.values[i]);
    }
    return gradient;
  }
  __device__ static void store(T* dx, int64_t row, int channels, int channel, const Loaded&,
                               const Channels<T>& dz) {
    store_pack(dx + row * channels + channel, from_floats<T>(dz));
  }
};

}  // namespace

void launch_gelu(Precision precision, const void* x, const float* bias, void* y, Extent extent,
                 int multiprocessors, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const SweepShape shape(extent, pack_width<T>, gelu_unroll, multiprocessors, gelu_blocks);
    gelu_kernel<T><<<shape.grid(), sweep_threads, 0, stream>>>(static_cast<const T*>(x), bias,
                                                               static_cast<T*>(y), extent, shape);
  });
  NM_CHECK_LAUNCH();
}

void launch_gelu_backward(Precision precision, const GeluGradient& operands, Extent extent,
                          const ReductionScratch& scratch, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const GeluSource<T> source{static_cast<const T*>(operands.dy),
                               static_cast<const T*>(operands.x), operands.bias};
    launch_gradient<T>(source, operands.dx, operands.bias_gradient, extent, scratch, stream);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
