// The input of a step: images in the layout that the first convolution reads, or ids of tokens, and
// labels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/cuda/kernels/update.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

/// NHWC with channels padded by zeros to `stored_channels`; with `block` B every B x B pixels are
/// first gathered into one of B x B times the channels (space to depth).
struct ImageLayout {
  int64_t batch = 0;
  int channels = 0, height = 0, width = 0;  // of an image
  int block = 1;
  int stored_channels = 0;

  constexpr int stored_height() const { return height / block; }
  constexpr int stored_width() const { return width / block; }
  constexpr int64_t stored_elements() const {
    return batch * stored_height() * stored_width() * stored_channels;
  }
  constexpr int64_t pixels() const { return batch * height * width; }
};

/// Standard normal values of `seed`, by their index in [batch, channels, height, width].
void launch_synthetic_images(Precision precision, const ImageLayout& layout, uint64_t seed,
                             void* images, cudaStream_t stream);
/// From fp32 [batch, channels, height, width].
void launch_convert_images(Precision precision, const ImageLayout& layout, const float* source,
                           void* images, cudaStream_t stream);
/// From [batch, height, width, channels] in the type of the activations, as a loader delivers them.
void launch_unpack_images(Precision precision, const ImageLayout& layout, const void* source,
                          void* images, cudaStream_t stream);
/// The inverse of launch_unpack_images().
void launch_pack_images(Precision precision, const ImageLayout& layout, const void* images,
                        void* destination, cudaStream_t stream);

/// Integers that each step draws anew.
struct DrawnIntegers {
  uint64_t seed = 0;
  int64_t count = 0;
  const StepState* state = nullptr;
  const int32_t* fixed = nullptr;      // take their place if ...
  const int32_t* use_fixed = nullptr;  // ... this is not 0
  int32_t* drawn = nullptr;
};
/// drawn[i] = label_at(seed, state->step, i, classes).
void launch_draw_labels(const DrawnIntegers& labels, int64_t classes, cudaStream_t stream);
/// drawn[i] = token_at(seed, state->step, i, vocabulary).
void launch_draw_tokens(const DrawnIntegers& tokens, int64_t vocabulary, cudaStream_t stream);

}  // namespace nearmetal::cuda
