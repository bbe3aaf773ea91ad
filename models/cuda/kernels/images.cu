#include "models/cuda/device/call.h"
#include "models/cuda/kernels/images.h"
#include "models/cuda/kernels/pack.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {
namespace {

// Where a value of an image is stored.
__device__ int64_t stored_at(const ImageLayout& layout, int64_t image, int channel, int row,
                             int column) {
  const int block = layout.block;
  const int64_t pixel =
      (image * layout.stored_height() + row / block) * layout.stored_width() + column / block;
  const int part = (row % block * block + column % block) * layout.channels + channel;
  return pixel * layout.stored_channels + part;
}

struct PixelIndex {
  int64_t image;
  int row, column;

  __device__ PixelIndex(const ImageLayout& layout, int64_t pixel)
      : image(pixel / layout.width / layout.height),
        row(static_cast<int>(pixel / layout.width % layout.height)),
        column(static_cast<int>(pixel % layout.width)) {}
};

__device__ int64_t nchw_index(const ImageLayout& layout, const PixelIndex& at, int channel) {
  return ((at.image * layout.channels + channel) * layout.height + at.row) * layout.width +
         at.column;
}

// Calls body(stored offset, pixel, channel) for every value of every image.
template <class Body>
__device__ void for_each_value(const ImageLayout& layout, Body body) {
  const int64_t pixel = this_piece();
  if (pixel >= layout.pixels()) return;
  const PixelIndex at(layout, pixel);
  for (int channel = 0; channel < layout.channels; ++channel) {
    body(stored_at(layout, at.image, channel, at.row, at.column), at, channel);
  }
}

template <class T>
__global__ void synthetic_images_kernel(ImageLayout layout, uint64_t seed, T* images) {
  for_each_value(layout, [&](int64_t stored, const PixelIndex& at, int channel) {
    images[stored] = from_float<T>(normal_at(seed, nchw_index(layout, at, channel)));
  });
}

template <class T>
__global__ void convert_images_kernel(ImageLayout layout, const float* source, T* images) {
  for_each_value(layout, [&](int64_t stored, const PixelIndex& at, int channel) {
    images[stored] = from_float<T>(source[nchw_index(layout, at, channel)]);
  });
}

template <class T, bool unpack>
__global__ void repack_images_kernel(ImageLayout layout, const T* source, T* destination) {
  for_each_value(layout, [&](int64_t stored, const PixelIndex& at, int channel) {
    const int64_t pixel = (at.image * layout.height + at.row) * layout.width + at.column;
    const int64_t packed = pixel * layout.channels + channel;
    if (unpack) {
      destination[stored] = source[packed];
    } else {
      destination[packed] = source[stored];
    }
  });
}

// `draw` makes the integer of a place in a step, of so many.
template <int32_t (*draw)(uint64_t seed, uint64_t step, uint64_t place, int64_t count)>
__global__ void draw_kernel(DrawnIntegers integers, int64_t count) {
  const int64_t i = this_piece();
  if (i >= integers.count) return;
  integers.drawn[i] = *integers.use_fixed != 0 ? integers.fixed[i]
                                               : draw(integers.seed, integers.state->step,
                                                      static_cast<uint64_t>(i), count);
}

}  // namespace

void launch_synthetic_images(Precision precision, const ImageLayout& layout, uint64_t seed,
                             void* images, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    NM_CALL(cudaMemsetAsync(images, 0, layout.stored_elements() * sizeof(T), stream));
    enqueue(each_piece(layout.pixels(), stream), synthetic_images_kernel<T>, layout, seed, images);
  });
}

void launch_convert_images(Precision precision, const ImageLayout& layout, const float* source,
                           void* images, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    NM_CALL(cudaMemsetAsync(images, 0, layout.stored_elements() * sizeof(T), stream));
    enqueue(each_piece(layout.pixels(), stream), convert_images_kernel<T>, layout, source, images);
  });
}

void launch_unpack_images(Precision precision, const ImageLayout& layout, const void* source,
                          void* images, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    enqueue(each_piece(layout.pixels(), stream), repack_images_kernel<T, true>, layout, source,
            images);
  });
}

void launch_pack_images(Precision precision, const ImageLayout& layout, const void* images,
                        void* destination, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    enqueue(each_piece(layout.pixels(), stream), repack_images_kernel<T, false>, layout, images,
            destination);
  });
}

void launch_draw_labels(const DrawnIntegers& labels, int64_t classes, cudaStream_t stream) {
  enqueue(each_piece(labels.count, stream), draw_kernel<label_at>, labels, classes);
}

void launch_draw_tokens(const DrawnIntegers& tokens, int64_t vocabulary, cudaStream_t stream) {
  enqueue(each_piece(tokens.count, stream), draw_kernel<token_at>, tokens, vocabulary);
}

}  // namespace nearmetal::cuda
