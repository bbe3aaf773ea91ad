// The gradient at the input of the batch norm before pooling (device code).
#pragma once

#include "models/cuda/norm_pool.h"
#include "models/cuda/pack.h"

namespace nearmetal {

// One byte per element of a pack.
template <class T>
struct alignas(pack_width<T>) PackBytes {
  uint8_t values[pack_width<T>];
};

// Of the 2 x 2 pixels of x whose windows are a pooled pixel and its right, lower and diagonal
// neighbour, for the channels of a pack. All is loaded first: no load waits for another.
template <class T>
class PoolGradient {
 public:
  __device__ PoolGradient(const PoolBackwardOperands& operands, const PoolShape& shape,
                          int64_t image, int row, int column, int channel)
      : rows_left_(shape.input_height - 2 * row), columns_left_(shape.input_width - 2 * column) {
    corner_ =
        ((image * shape.input_height + 2 * row) * shape.input_width + 2 * column) * shape.channels +
        channel;
    row_stride_ = shape.input_width * shape.channels;
    channels_ = shape.channels;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      if (inside(part)) x_[part] = load_pack(static_cast<const T*>(operands.x) + offset(part));
    }
    const int64_t pooled =
        ((image * shape.output_height + row) * shape.output_width + column) * shape.channels +
        channel;
#pragma unroll
    for (int neighbour = 0; neighbour < 4; ++neighbour) {
      dz_[neighbour] = {};
      winner_[neighbour] = {};
      const int down = neighbour / 2, right = neighbour % 2;
      if (row + down >= shape.output_height || column + right >= shape.output_width) continue;
      const int64_t at = pooled + (down * shape.output_width + right) * shape.channels;
      dz_[neighbour] = load_pack(static_cast<const T*>(operands.dz) + at);
      winner_[neighbour] = *reinterpret_cast<const PackBytes<T>*>(operands.winner + at);
    }
  }

  // `part` counts the four pixels along the rows.
  __device__ bool inside(int part) const {
    return part / 2 < rows_left_ && part % 2 < columns_left_;
  }
  __device__ int64_t offset(int part) const {  // in x
    return corner_ + part / 2 * row_stride_ + part % 2 * channels_;
  }
  // a * dz + b * x + c
  __device__ Pack<T> value(int part, const Channels<T>& a, const Channels<T>& b,
                           const Channels<T>& c) const {
    const int r = part / 2, s = part % 2;
    Channels<T> result = to_floats(x_[part]);
#pragma unroll
    for (int i = 0; i < pack_width<T>; ++i) {
      // Position of this pixel in the windows: 1 + r, 1 + s in its own, and in the next one, if
      // it reaches there, row or column 0.
      float dz = from(0, i, (1 + r) * window + 1 + s);
      if (s == 1) dz += from(1, i, (1 + r) * window);
      if (r == 1) dz += from(2, i, 1 + s);
      if (r == 1 && s == 1) dz += from(3, i, 0);
      result.values[i] = fmaf(a.values[i], dz, fmaf(b.values[i], result.values[i], c.values[i]));
    }
    return from_floats<T>(result);
  }

 private:
  static constexpr int window = stem_pool_window.kernel;

  // What a window hands to its position `tap`.
  __device__ float from(int neighbour, int i, int tap) const {
    return winner_[neighbour].values[i] == tap ? to_float(dz_[neighbour].values[i]) : 0.0f;
  }

  int64_t corner_;
  int rows_left_, columns_left_, row_stride_, channels_;
  Pack<T> x_[4], dz_[4];
  PackBytes<T> winner_[4];
};

}  // namespace nearmetal
