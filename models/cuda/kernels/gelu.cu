#include "models/cuda/device/check.h"
#include "models/cuda/kernels/gelu.h"
#include "models/cuda/kernels/gradient_sweep.h"

namespace nearmetal::cuda {
namespace {

constexpr int gelu_unroll = 2;

struct Normal {
  float distribution, density;  // of the standard normal distribution at x
};

// The normal distribution at x: for 16-bit tensors by Abramowitz and Stegun, 7.1.26, within 1e-7 of
// its distribution function, as the accurate erff() takes longer than the memory.
template <class T>
__device__ Normal normal_at(float x) {
  constexpr float density_at_0 = 0.398942280f, inverse_root_of_2 = 0.707106781f;
  if constexpr (sizeof(T) == sizeof(float)) {
    return {0.5f * erfcf(-x * inverse_root_of_2), density_at_0 * expf(-0.5f * x * x)};
  } else {
    const float bell = __expf(-0.5f * x * x);
    const float t = __fdividef(1.0f, fmaf(0.3275911f * inverse_root_of_2, fabsf(x), 1.0f));
    float tail = fmaf(1.061405429f, t, -1.453152027f);
    tail = fmaf(tail, t, 1.421413741f);
    tail = fmaf(tail, t, -0.284496736f);
    tail = fmaf(tail, t, 0.254829592f);
    tail *= 0.5f * t * bell;
    return {x < 0 ? tail : 1 - tail, density_at_0 * bell};
  }
}

template <class T>
__global__ void __launch_bounds__(sweep_threads)
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
        const float value = values.values[i] + added.values[i];
        values.values[i] = value * normal_at<T>(value).distribution;
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
    Channels<T> gradient = to_floats(*reinterpret_cast<const Pack<T>*>(&loaded.dy));
    const Channels<T> before = to_floats(*reinterpret_cast<const Pack<T>*>(&loaded.x));
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      const float value = before.values[i] + added.values[i];
      const Normal normal = normal_at<T>(value);
      gradient.values[i] *= fmaf(value, normal.density, normal.distribution);
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
    const SweepShape shape(extent, pack_width<T>, gelu_unroll, multiprocessors);
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
