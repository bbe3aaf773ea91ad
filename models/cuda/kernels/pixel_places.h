// Where the rows of an NHWC tensor lie in its images (device code).
#pragma once

#include <cstdint>

#include "models/cuda/kernels/batch_norm.h"

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

}  // namespace nearmetal::cuda
