// The gradient at the input of the batch norm before pooling (device code).
#pragma once

#include "models/cuda/kernels/norm_pool.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {

// One byte per element of a pack.
template <class T>
struct alignas(pack_width<T>) PackBytes {
  static constexpr int words = pack_width<T> / 4;
  uint32_t bytes[words];

  __device__ static PackBytes none() {
    PackBytes result;
    for (uint32_t& word : result.bytes) word = 0xffffffff;
    return result;
  }
  __device__ int value(int i) const { return static_cast<int>(bytes[i / 4] >> i % 4 * 8 & 0xff); }
  __device__ void set(int i, int value) {
    const uint32_t byte = static_cast<uint32_t>(value) << i % 4 * 8;
    bytes[i / 4] = i % 4 == 0 ? byte : bytes[i / 4] | byte;
  }
};

// The gradient of the 2 x 2 pixels of x whose windows are a pooled pixel and its right, lower and
// diagonal neighbour, for the channels of a pack. All is loaded first: no load waits for another.
template <class T>
class PoolGradient {
 public:
  __device__ PoolGradient(const PoolBackwardOperands& operands, const PoolShape& shape,
                          int64_t image, int row, int column, int channel)
      : rows_left_(shape.input_height - 2 * row), columns_left_(shape.input_width - 2 * column) {
    // Offsets within an image have 32 bits.
    const auto* x = static_cast<const T*>(operands.x) +
                    image * shape.input_height * shape.input_width * shape.channels;
    const int64_t pooled_image = image * shape.output_height * shape.output_width * shape.channels;
    const auto* dz = static_cast<const T*>(operands.dz) + pooled_image;
    const uint8_t* winner = operands.winner + pooled_image;
    const int corner = (2 * row * shape.input_width + 2 * column) * shape.channels + channel;
    const int pooled = (row * shape.output_width + column) * shape.channels + channel;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int at = corner + (part / 2 * shape.input_width + part % 2) * shape.channels;
      if (inside(part)) x_[part] = *reinterpret_cast<const uint4*>(x + at);
    }
#pragma unroll
    for (int neighbour = 0; neighbour < 4; ++neighbour) {
      const int down = neighbour / 2, right = neighbour % 2;
      const bool there = row + down < shape.output_height && column + right < shape.output_width;
      const int at = there ? pooled + (down * shape.output_width + right) * shape.channels : pooled;
      dz_[neighbour] = *reinterpret_cast<const uint4*>(dz + at);
      const auto found = *reinterpret_cast<const PackBytes<T>*>(winner + at);
      winner_[neighbour] = there ? found : PackBytes<T>::none();
    }
  }

  // `part` counts the four pixels along the rows.
  __device__ bool inside(int part) const {
    return part / 2 < rows_left_ && part % 2 < columns_left_;
  }

  // a * dz + b * x + c
  __device__ void form(const Channels<T>& a, const Channels<T>& b, const Channels<T>& c,
                       Pack<T> (&gradients)[4]) const {
    Channels<T> dz[4] = {};
    add_neighbour<0>(dz);
    add_neighbour<1>(dz);
    add_neighbour<2>(dz);
    add_neighbour<3>(dz);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const Channels<T> x = to_floats(reinterpret_cast<const Pack<T>&>(x_[part]));
#pragma unroll
      for (int i = 0; i < pack_width<T>; ++i) {
        float& value = dz[part].values[i];
        value = fmaf(a.values[i], value, fmaf(b.values[i], x.values[i], c.values[i]));
      }
      gradients[part] = from_floats<T>(dz[part]);
    }
  }

 private:
  // Adds a pooled pixel's gradient to whichever of the four pixels has won in its window.
  template <int neighbour>
  __device__ void add_neighbour(Channels<T> (&dz)[4]) const {
    const Channels<T> values = to_floats(reinterpret_cast<const Pack<T>&>(dz_[neighbour]));
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      const int winner = winner_[neighbour].value(i);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        // Row 1 + part / 2 of the pixel's own window, and row 0 of that below, if it reaches there.
        constexpr int down = neighbour / 2, right = neighbour % 2;
        const int row = 1 + part / 2 - 2 * down, column = 1 + part % 2 - 2 * right;
        if (row < 0 || column < 0) continue;
        if (winner == row * stem_pool_window.kernel + column) {
          dz[part].values[i] += values.values[i];
        }
      }
    }
  }

  int rows_left_, columns_left_;
  uint4 x_[4], dz_[4];
  PackBytes<T> winner_[4];
};

}  // namespace nearmetal::cuda
