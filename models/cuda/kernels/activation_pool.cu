#include "models/cuda/device/call.h"
#include "models/cuda/kernels/gradient_sweep.h"

namespace nearmetal::cuda {
namespace {

constexpr int pool_threads = 256;

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
__global__ void __launch_bounds__(pool_threads)
    activation_pool_kernel(PoolShape shape, const T* x, Activation activation, T* y,
                           uint8_t* winner, int64_t all_packs) {
  constexpr int width = pack_width<T>;
  const int64_t index = int64_t{blockIdx.x} * pool_threads + threadIdx.x;
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
  __device__ static void store(T* dx, int64_t row, int channels, int channel, const Loaded&,
                               const Channels<T>& dz) {
    store_pack(dx + row * channels + channel, from_floats<T>(dz));
  }
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

}  // namespace

void launch_activation_pool(Precision precision, const PoolShape& shape, const void* x,
                            const Activation& activation, void* y, uint8_t* winner,
                            cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const int64_t packs = shape.output().elements() / pack_width<T>;
    activation_pool_kernel<T><<<blocks_for(packs, pool_threads), pool_threads, 0, stream>>>(
        shape, static_cast<const T*>(x), activation, static_cast<T*>(y), winner, packs);
  });
  NM_CHECK_LAUNCH();
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
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
