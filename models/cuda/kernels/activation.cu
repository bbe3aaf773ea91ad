#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/gradient_sweep.h"

namespace nearmetal::cuda {
namespace {

constexpr int activation_unroll = 4;

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
};

template <class T>
__global__ void add_kernel(const T* left, const T* right, T* sum, int64_t packs) {
  const int64_t index = int64_t{blockIdx.x} * piece_threads + threadIdx.x;
  if (index >= packs) return;
  const int64_t at = index * pack_width<T>;
  Channels<T> total = to_floats(load_pack(left + at));
  const Channels<T> other = to_floats(load_pack(right + at));
#pragma unroll
  for (int i = 0; i < pack_width<T>; ++i) total.values[i] += other.values[i];
  store_pack(sum + at, from_floats<T>(total));
}

struct ImagePixel {
  unsigned image, row, column;

  __device__ ImagePixel(int64_t pixel, int height, int width) {
    const auto index = static_cast<unsigned>(pixel);  // holds the pixels of any batch
    const unsigned line = index / width;
    column = index - line * width;
    image = line / height;
    row = line - image * height;
  }
};

// Places of the maxima of a pack's channels in their window.
template <class T>
struct alignas(pack_width<T>) Taps {
  uint8_t values[pack_width<T>];

  __device__ static Taps load(const uint8_t* address) {
    return *reinterpret_cast<const Taps*>(address);
  }
  __device__ void store(uint8_t* address) const { *reinterpret_cast<Taps*>(address) = *this; }
};

template <class T>
__global__ void __launch_bounds__(piece_threads)
    activation_pool_kernel(PoolShape shape, const T* x, Activation activation, T* y,
                           uint8_t* winner, int64_t all_packs) {
  constexpr int width = pack_width<T>;
  const int64_t index = int64_t{blockIdx.x} * piece_threads + threadIdx.x;
  if (index >= all_packs) return;
  const int64_t packs = shape.channels / width, pixel_index = index / packs;
  const int channel = static_cast<int>(index - pixel_index * packs) * width;
  const ImagePixel pixel(pixel_index, shape.output_height, shape.output_width);
  const int kernel = static_cast<int>(shape.window.kernel);
  const int stride = static_cast<int>(shape.window.stride);
  const int padding = static_cast<int>(shape.window.padding);
  const int top = static_cast<int>(pixel.row) * stride - padding;
  const int left = static_cast<int>(pixel.column) * stride - padding;
  Channels<T> best;
  Taps<T> taps;
  bool first = true;
  for (int r = max(0, -top); r < kernel && top + r < shape.input_height; ++r) {
    for (int s = max(0, -left); s < kernel && left + s < shape.input_width; ++s) {
      const int64_t at =
          ((int64_t{pixel.image} * shape.input_height + top + r) * shape.input_width + left + s) *
              shape.channels +
          channel;
      const Channels<T> values = to_floats(load_pack(x + at));
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float value = values.values[i];
        if (first || value > best.values[i] ||
            (value != value && best.values[i] == best.values[i])) {
          best.values[i] = value;
          taps.values[i] = static_cast<uint8_t>(r * kernel + s);
        }
      }
      first = false;
    }
  }
  const ActivationOf<T> of(activation, channel);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    best.values[i] = of.apply(i, best.values[i]);
    if (activation.relu && !(best.values[i] > 0)) taps.values[i] = no_winner;
  }
  store_pack(y + index * width, from_floats<T>(best));
  if (winner != nullptr) taps.store(winner + index * width);
}

// The gradient before max pooling: of every window that has a pixel, dy where the pixel has won.
template <class T>
struct PooledGradient {
  static constexpr int unroll = 1;
  PoolShape shape;
  const T* dy;
  const uint8_t* winner;

  using Loaded = Channels<T>;
  __device__ Loaded load(int64_t row, int channels, int channel) const {
    constexpr int width = pack_width<T>;
    const ImagePixel pixel(row, shape.input_height, shape.input_width);
    const int kernel = static_cast<int>(shape.window.kernel);
    const int stride = static_cast<int>(shape.window.stride);
    const int down = static_cast<int>(pixel.row + shape.window.padding);
    const int right = static_cast<int>(pixel.column + shape.window.padding);
    Channels<T> sum = {};
    for (int r = max(0, (down - kernel + stride) / stride);
         r < shape.output_height && r * stride <= down; ++r) {
      for (int s = max(0, (right - kernel + stride) / stride);
           s < shape.output_width && s * stride <= right; ++s) {
        const int tap = (down - r * stride) * kernel + right - s * stride;
        const int64_t at =
            ((int64_t{pixel.image} * shape.output_height + r) * shape.output_width + s) * channels +
            channel;
        const Channels<T> gradient = to_floats(load_pack(dy + at));
        const Taps<T> taps = Taps<T>::load(winner + at);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          sum.values[i] += taps.values[i] == tap ? gradient.values[i] : 0.0f;
        }
      }
    }
    return sum;
  }
  __device__ static Channels<T> values(const Loaded& loaded) { return loaded; }
};

// The same where windows do not overlap, by the windows: a pixel is in one of them, or in none.
template <class T>
struct WindowGradient {
  static constexpr int unroll = 2;
  PoolShape shape;
  const T* dy;
  const uint8_t* winner;

  struct Loaded {
    Pack<T> dy;
    Taps<T> taps;
  };
  __device__ Loaded load(int64_t row, int channels, int channel) const {
    const int64_t at = row * channels + channel;
    return {load_pack(dy + at), Taps<T>::load(winner + at)};
  }
  __device__ static Channels<T> values(const Loaded& loaded) {
    Channels<T> dz = to_floats(loaded.dy);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      if (loaded.taps.values[i] == no_winner) dz.values[i] = 0;
    }
    return dz;
  }
  // The last windows of an image clear the pixels behind them, too, which are in none.
  __device__ void store(T* dx, int64_t row, int channels, int channel, const Loaded& loaded,
                        const Channels<T>&) const {
    const ImagePixel pixel(row, shape.output_height, shape.output_width);
    const int kernel = static_cast<int>(shape.window.kernel);
    const int top = static_cast<int>(pixel.row) * kernel;
    const int left = static_cast<int>(pixel.column) * kernel;
    const bool last_row = static_cast<int>(pixel.row) == shape.output_height - 1;
    const bool last_column = static_cast<int>(pixel.column) == shape.output_width - 1;
    const int rows = last_row ? shape.input_height - top : kernel;
    const int columns = last_column ? shape.input_width - left : kernel;
    T* corner =
        dx +
        ((int64_t{pixel.image} * shape.input_height + top) * shape.input_width + left) * channels +
        channel;
    for (int r = 0; r < rows; ++r) {
      for (int s = 0; s < columns; ++s) {
        const int tap = r < kernel && s < kernel ? r * kernel + s : -1;
        Pack<T> pack = loaded.dy;
#pragma unroll
        for (int i = 0; i < pack_width<T>; ++i) {
          if (loaded.taps.values[i] != tap) pack.values[i] = from_float<T>(0);
        }
        store_pack(corner + (int64_t{r} * shape.input_width + s) * channels, pack);
      }
    }
  }
};

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
};

}  // namespace

void launch_activation(Precision precision, const void* x, const Activation& activation, void* y,
                       Extent extent, int multiprocessors, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const SweepShape shape(extent, pack_width<T>, activation_unroll, multiprocessors);
    const auto kernel =
        activation.residual != nullptr ? activation_kernel<T, true> : activation_kernel<T, false>;
    enqueue({shape.grid(), sweep_threads, stream}, kernel, x, activation, y, extent, shape);
  });
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
}

void launch_add(Precision precision, const void* left, const void* right, void* sum,
                int64_t elements, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const int64_t packs = elements / pack_width<T>;
    enqueue(each_piece(packs, stream), add_kernel<T>, left, right, sum, packs);
  });
}

void launch_activation_pool(Precision precision, const PoolShape& shape, const void* x,
                            const Activation& activation, void* y, uint8_t* winner,
                            cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const int64_t packs = shape.output().elements() / pack_width<T>;
    enqueue(each_piece(packs, stream), activation_pool_kernel<T>, shape, x, activation, y, winner,
            packs);
  });
}

void launch_activation_pool_backward(Precision precision, const PoolShape& shape,
                                     const PoolGradientOperands& operands,
                                     const ReductionScratch& scratch, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const auto* dy = static_cast<const T*>(operands.dy);
    const auto launch = [&](const auto& source, Extent extent) {
      launch_gradient<T>(source, operands.dx, operands.bias_gradient, extent, scratch, stream);
    };
    const Window& window = shape.window;
    if (window.stride == window.kernel && window.padding == 0) {
      launch(WindowGradient<T>{shape, dy, operands.winner}, shape.output());
    } else {
      launch(PooledGradient<T>{shape, dy, operands.winner}, shape.input());
    }
  });
}

void launch_gelu(Precision precision, const void* x, const float* bias, void* y, Extent extent,
                 int multiprocessors, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const SweepShape shape(extent, pack_width<T>, gelu_unroll, multiprocessors, gelu_blocks);
    enqueue({shape.grid(), sweep_threads, stream}, gelu_kernel<T>, x, bias, y, extent, shape);
  });
}

void launch_gelu_backward(Precision precision, const GeluGradient& operands, Extent extent,
                          const ReductionScratch& scratch, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const GeluSource<T> source{static_cast<const T*>(operands.dy),
                               static_cast<const T*>(operands.x), operands.bias};
    launch_gradient<T>(source, operands.dx, operands.bias_gradient, extent, scratch, stream);
  });
}

}  // namespace nearmetal::cuda
