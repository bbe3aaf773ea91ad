#include "models/cuda/device/call.h"
#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/gradient_sweep.h"

namespace nearmetal::cuda {
namespace {

constexpr int activation_unroll = 4;
constexpr int activation_threads = 256;

template <class T, bool adds>
__global__ void __launch_bounds__(sweep_threads)
    activation_kernel(const T* x, Activation activation, T* y, Extent extent, SweepShape shape) {
  constexpr int unroll = activation_unroll, width = pack_width<T>;
  const SweepPosition position(shape, extent, width);
  if (!position.active) return;
  const ActivationOf<T> of(activation, position.channel);
  const auto* residual = static_cast<const T*>(activation.residual);
  sweep_backwards<unroll>(position, extent, [&](const int64_t(&at)[unroll], int count) {
    Pack<T> packs[unroll], others[adds ? unroll : 1];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (u >= count) break;
      packs[u] = load_pack(x + at[u]);
      if constexpr (adds) others[u] = load_pack(residual + at[u]);
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (u >= count) break;
      Channels<T> values = to_floats(packs[u]);
      Channels<T> added = {};
      if constexpr (adds) added = to_floats(others[u]);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        values.values[i] =
            of.apply(i, adds ? values.values[i] + added.values[i] : values.values[i]);
      }
      store_pack(y + at[u], from_floats<T>(values));
    }
  });
}

// The gradient before an activation, from that behind it.
template <class T, bool relu>
struct MaskedGradient {
  static constexpr int unroll = 4, blocks = 2;
  const T* dy;
  const T* y;

  // Packed: of 16-bit values each would take a register of its own.
  struct Loaded {
    uint4 dy, y;
  };
  __device__ Loaded load(int64_t row, int channels, int channel) const {
    const int64_t at = row * channels + channel;
    Loaded loaded;
    loaded.dy = *reinterpret_cast<const uint4*>(dy + at);
    if constexpr (relu) loaded.y = *reinterpret_cast<const uint4*>(y + at);
    return loaded;
  }
  __device__ static Channels<T> values(const Loaded& loaded) {
    Channels<T> dz = floats_of<T>(loaded.dy);
    if constexpr (relu) {
      const Channels<T> y = floats_of<T>(loaded.y);
#pragma unroll
      for (int i = 0; i < pack_width<T>; ++i) dz.values[i] = y.values[i] > 0 ? dz.values[i] : 0.0f;
    }
    return dz;
  }
  __device__ static void store(T* dx, int64_t row, int channels, int channel, const Loaded&,
                               const Channels<T>& dz) {
    store_pack(dx + row * channels + channel, from_floats<T>(dz));
  }
};

template <class T>
__global__ void add_kernel(const T* left, const T* right, T* sum, int64_t packs) {
  const int64_t index = int64_t{blockIdx.x} * activation_threads + threadIdx.x;
  if (index >= packs) return;
  const int64_t at = index * pack_width<T>;
  Channels<T> total = to_floats(load_pack(left + at));
  const Channels<T> other = to_floats(load_pack(right + at));
#pragma unroll
  for (int i = 0; i < pack_width<T>; ++i) total.values[i] += other.values[i];
  store_pack(sum + at, from_floats<T>(total));
}

}  // namespace

void launch_activation(Precision precision, const void* x, const Activation& activation, void* y,
                       Extent extent, int multiprocessors, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const SweepShape shape(extent, pack_width<T>, activation_unroll, multiprocessors);
    const auto kernel =
        activation.residual != nullptr ? activation_kernel<T, true> : activation_kernel<T, false>;
    kernel<<<shape.grid(), sweep_threads, 0, stream>>>(static_cast<const T*>(x), activation,
                                                       static_cast<T*>(y), extent, shape);
  });
  NM_CHECK_LAUNCH();
}

void launch_activation_backward(Precision precision, const ActivationGradient& operands,
                                Extent extent, const ReductionScratch& scratch,
                                cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const auto launch = [&]<bool relu>() {
      const MaskedGradient<T, relu> source{static_cast<const T*>(operands.dy),
                                           static_cast<const T*>(operands.y)};
      launch_gradient<T>(source, operands.dx, operands.bias_gradient, extent, scratch, stream);
    };
    operands.y == nullptr ? launch.template operator()<false>()
                          : launch.template operator()<true>();
  });
  NM_CHECK_LAUNCH();
}

void launch_add(Precision precision, const void* left, const void* right, void* sum,
                int64_t elements, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const int64_t packs = elements / pack_width<T>;
    add_kernel<T><<<blocks_for(packs, activation_threads), activation_threads, 0, stream>>>(
        static_cast<const T*>(left), static_cast<const T*>(right), static_cast<T*>(sum), packs);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
