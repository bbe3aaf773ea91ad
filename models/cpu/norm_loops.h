// Batch norm with ReLU as loops: oneDNN's backward pass reaches a tenth of the memory bandwidth,
// and its fused ReLU hides a NaN.
#pragma once

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "models/program.h"

namespace nearmetal::cpu {

/// A tensor as [images, groups, pixels, lanes], where channel = group * lanes + lane; lanes beyond
/// the channels are padding. Covers the plain layouts (1 lane, or 1 group) and those in blocks.
struct NormExtent {
  int64_t images = 0, groups = 0, pixels = 0, lanes = 0;
  int64_t channels = 0;

  int64_t padded_channels() const { return groups * lanes; }
};
/// Throws std::invalid_argument for another layout.
NormExtent norm_extent(const dnnl::memory::desc& desc);

/// Bytes that either pass needs to add up partial sums and to hold coefficients.
int64_t norm_scratch_bytes(const NormExtent& extent);

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias, mean and biased variance of the batch;
/// `relu` takes the positive part.
struct NormForward {
  const void* x;
  const float* scale;
  const float* bias;
  bool relu;
  void* y;
  float* mean;
  float* variance;
  double* scratch;
};
void norm_forward(Precision precision, const NormExtent& extent, const NormForward& operands);

/// Ioffe and Szegedy, 2015, arXiv 1502.03167, section 3; `y` is null without ReLU. `dx` may be
/// `dy`.
struct NormBackward {
  const void* x;
  const void* y;
  const void* dy;
  const float* scale;
  const float* mean;
  const float* variance;
  void* dx;
  float* scale_gradient;
  float* bias_gradient;
  double* scratch;
};
void norm_backward(Precision precision, const NormExtent& extent, const NormBackward& operands);

}  // namespace nearmetal::cpu
