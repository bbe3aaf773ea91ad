// The backward pass of a 1x1 convolution of stride 1 in one kernel, with the batch norm behind it:
// the gradient at the convolution's output is formed on load and never stored.
//
// Apart, the apply sweep writes that gradient and two kernels of cuDNN read it again. Together, per
// row of `out` output and `in` input channels in 16 bits: 2 * (2 * out + 2 * in) bytes instead of
// 2 * (5 * out + 2 * in). For Hopper (wgmma), where 64 of one side meet 64 or 256 of the other, or
// 128 outputs 256 inputs: that many sums of a weight gradient fit into the registers of one
// multiprocessor. 512 inputs are two slices of 256, of which each reads dz and y. Where the input
// is a block's output, the kernel can add the shortcut's gradient and mask the sum, too: a sweep
// less, of 6 bytes per element.
#pragma once

#include "models/cuda/kernels/batch_norm.h"

namespace nearmetal::cuda {

struct PointwiseShape {
  int64_t rows = 0;  // images x height x width
  int output_channels = 0;
  int input_channels = 0;
};

/// Whether the kernel computes this shape on this device.
bool pointwise_backward_fits(Precision precision, const PointwiseShape& shape,
                             int compute_capability_major);

/// Whether the kernel for this shape takes dx_second.
bool pointwise_backward_joins(const PointwiseShape& shape);

/// Bytes of `partial_sums`.
int64_t pointwise_backward_scratch_bytes(const PointwiseShape& shape, int multiprocessors);

/// With dz the gradient behind the batch norm, dy = a * dz + b * y + c at the convolution's output;
/// without y, dz is that gradient itself.
struct PointwiseBackwardOperands {
  const void* dz = nullptr;  // [rows, output_channels]
  const void* y = nullptr;   // [rows, output_channels], the convolution's output, or null
  BatchNormState state;      // after the backward sums
  // dz is the gradient behind a ReLU, its mask recomputed from y: only where output channels are no
  // more than input channels, and then only with y.
  bool relu = false;
  const void* x = nullptr;        // [rows, input_channels], the convolution's input
  const void* weights = nullptr;  // [output_channels, input_channels]
  void* dx = nullptr;             // [rows, input_channels]
  // The gradient at x, the output of a ReLU, by another consumer, or null. With it dx is the
  // gradient before the ReLU, the sum of both where x > 0, and dx_sums gets its sums over the rows.
  const void* dx_second = nullptr;  // [rows, input_channels]
  // Not 0: dx_second is as of Incoming::two_second_at_even_pixels, of images of this size.
  ImageSize second_at_even_pixels_of;
  float* dx_sums = nullptr;         // [input_channels]
  void* weight_gradient = nullptr;  // as the weights
  float* partial_sums = nullptr;    // scratch
};
void launch_pointwise_backward(Precision precision, const PointwiseBackwardOperands& operands,
                               const PointwiseShape& shape, int multiprocessors,
                               cudaStream_t stream);

}  // namespace nearmetal::cuda
