// The gradient behind a batch norm, from where the consumers of its output left it (device code).
#pragma once

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/pixel_places.h"

namespace nearmetal::cuda {

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
