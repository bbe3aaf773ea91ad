// Seeded synthetic values by position, the same on host and device and in any order of evaluation
// (normals up to the rounding of the two maths libraries).
#pragma once

#include <cmath>
#include <cstdint>

#include "models/host_device.h"

namespace nearmetal {

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014): a bijection of 64 bits whose outputs pass as random.
NM_HOST_DEVICE inline uint64_t mixed_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Seed of one stream of values among many, e.g. of one parameter or of one rank's images.
NM_HOST_DEVICE inline uint64_t substream(uint64_t seed, uint64_t index) {
  return mixed_bits(mixed_bits(seed) + index);
}

/// Seeds of the two streams that a rank's data_seed feeds, the first of images or tokens.
NM_HOST_DEVICE inline uint64_t image_seed(uint64_t data_seed) { return substream(data_seed, 0); }
NM_HOST_DEVICE inline uint64_t label_seed(uint64_t data_seed) { return substream(data_seed, 1); }

/// Uniform in (0, 1), never 0 nor 1.
NM_HOST_DEVICE inline double uniform_at(uint64_t seed, uint64_t index) {
  return (static_cast<double>(substream(seed, index) >> 12) + 0.5) * 0x1p-52;
}

/// Standard normal by Box and Muller (1958) from two halves of one 64-bit draw: single precision,
/// tails cut at 6.6 standard deviations.
NM_HOST_DEVICE inline float normal_at(uint64_t seed, uint64_t index) {
  const uint64_t bits = substream(seed, index);
  const float radius_draw = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
  const float angle_draw = static_cast<float>((bits >> 8) & 0xffffff) * 0x1p-24f;
  return sqrtf(-2.0f * logf(radius_draw)) * cosf(6.2831853f * angle_draw);
}

/// Label of image `image` in step `step`: uniform over the classes, redrawn every step.
NM_HOST_DEVICE inline int32_t label_at(uint64_t seed, uint64_t step, uint64_t image,
                                       int64_t classes) {
  return static_cast<int32_t>(substream(substream(seed, step), image) %
                              static_cast<uint64_t>(classes));
}

/// Id of token `token` among those of step `step`, as labels: never 0, which is BERT's padding.
NM_HOST_DEVICE inline int32_t token_at(uint64_t seed, uint64_t step, uint64_t token,
                                       int64_t vocabulary) {
  return 1 + label_at(seed, step, token, vocabulary - 1);
}

}  // namespace nearmetal
