// The gradient behind a batch norm, from where the consumers of its output left it, and the place
// of a row of an NHWC tensor in its image (device code).
#pragma once

#include <cstdint>

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {

/// Division of a number below 2^31 by one known at launch: the device has no instruction for it.
struct Divider {
  unsigned divisor = 1, multiplier = 0, shift = 0;

  explicit Divider(int divided_by) : divisor(static_cast<unsigned>(max(divided_by, 1))) {
    unsigned bits = 0;
    while (uint64_t{1} << bits < divisor) ++bits;
    if (bits == 0) return;
    shift = bits - 1;
    multiplier = static_cast<unsigned>(((uint64_t{1} << (31 + bits)) + divisor - 1) / divisor);
  }
  __device__ unsigned quotient(unsigned value) const {
    return divisor == 1 ? value : __umulhi(value, multiplier) >> shift;
  }
};

/// Where the row of a tensor lies in its image.
struct PixelPlaces {
  Divider height, width, pixels;
  unsigned even_height, even_width;

  explicit PixelPlaces(ImageSize image)
      : height(image.height),
        width(image.width),
        pixels(image.pixels()),
        even_height((image.height + 1) / 2),
        even_width((image.width + 1) / 2) {}

  __device__ int64_t image(unsigned row) const { return pixels.quotient(row); }
  /// Among the pixels of even rows and columns alone; -1 for all others.
  __device__ int64_t even_pixel(unsigned row) const {
    const unsigned line = width.quotient(row), column = row - line * width.divisor;
    const unsigned image = height.quotient(line), line_in_image = line - image * height.divisor;
    if (((column | line_in_image) & 1) != 0) return -1;
    return int64_t{image * even_height + line_in_image / 2} * even_width + column / 2;
  }
};

enum class ReluMask { none, recomputed, stored };

constexpr bool has_second(Incoming incoming) {
  return incoming == Incoming::two || incoming == Incoming::two_second_at_even_pixels;
}

// dz = mask * gradient of one pack.
template <class T, ReluMask relu, Incoming incoming>
struct Gradient {
  const T* dy;
  const T* dy_second;
  const uint8_t* mask;
  int channel, channels;
  float mean_factor;
  Channels<T> multiplier, shift;  // for ReluMask::recomputed

  __device__ Gradient(const NormBackwardOperands& operands, int channel, int channels)
      : dy(static_cast<const T*>(operands.dy)),
        dy_second(static_cast<const T*>(operands.dy_second)),
        mask(operands.mask),
        channel(channel),
        channels(channels),
        mean_factor(1 / static_cast<float>(operands.image.pixels())) {
    if constexpr (relu == ReluMask::recomputed) {
      multiplier = Channels<T>::load(operands.state.multiplier + channel);
      shift = Channels<T>::load(operands.state.shift + channel);
    }
  }

  struct Loaded {
    Pack<T> dy, dy_second;
    unsigned bits;
  };
  __device__ Loaded load(int64_t at) const {
    static_assert(incoming == Incoming::one || incoming == Incoming::two);
    Loaded loaded;
    loaded.dy = load_pack(dy + at);
    if constexpr (incoming == Incoming::two) loaded.dy_second = load_pack(dy_second + at);
    if constexpr (relu == ReluMask::stored) loaded.bits = mask[at / pack_width<T>];
    return loaded;
  }
  __device__ Loaded load(int64_t at, unsigned row, const PixelPlaces& places) const {
    if constexpr (incoming == Incoming::one || incoming == Incoming::two) {
      return load(at);
    } else {
      Loaded loaded;
      if constexpr (incoming == Incoming::of_mean) {
        loaded.dy = load_pack(dy + places.image(row) * channels + channel);
      } else {
        loaded.dy = load_pack(dy + at);
        const int64_t pixel = places.even_pixel(row);
        loaded.dy_second =
            pixel < 0 ? Pack<T>{} : load_pack(dy_second + pixel * channels + channel);
      }
      loaded.bits = mask[at / pack_width<T>];
      return loaded;
    }
  }
  __device__ Channels<T> values(const Loaded& loaded, const Channels<T>& x) const {
    Channels<T> dz = to_floats(loaded.dy);
    if constexpr (has_second(incoming)) {
      const Channels<T> second = to_floats(loaded.dy_second);
#pragma unroll
      for (int i = 0; i < pack_width<T>; ++i) dz.values[i] += second.values[i];
    }
    if constexpr (incoming == Incoming::of_mean) {
#pragma unroll
      for (int i = 0; i < pack_width<T>; ++i) dz.values[i] *= mean_factor;
    }
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      bool passes = true;
      if constexpr (relu == ReluMask::stored) passes = loaded.bits >> i & 1;
      if constexpr (relu == ReluMask::recomputed) {
        passes = fmaf(x.values[i], multiplier.values[i], shift.values[i]) > 0;
      }
      dz.values[i] = passes ? dz.values[i] : 0.0f;
    }
    return dz;
  }
};

}  // namespace nearmetal::cuda
