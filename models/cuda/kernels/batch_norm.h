// Batch norm in training mode with what follows it in a ResNet: ReLU, residual add, both
// directions.
//
// Each direction is two sweeps over the tensor: one that sums per channel, one that applies. Sums
// are deterministic: every block leaves its partial sums, the last block of a channel slice adds
// them.
//
// Bytes per element of E bytes, whose copy is the floor. Forward: the sums read E (0 where the
// convolution left them), apply reads E and writes E; a residual adds E, its mask 1/8. Backward:
// both sweeps read x and dy, 2 E, and E for each of a second dy (E / 4 at even pixels alone) and a
// residual that is normalised too; the sums write dz (E) where there is a residual, and apply then
// reads that in place of dy; apply writes E, or 2 E with a normalised residual.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/training_options.h"

namespace nearmetal::cuda {

/// The device arrays of one batch norm, one fp32 per channel each.
struct BatchNormState {
  const float* scale = nullptr;  // trained
  const float* bias = nullptr;   // trained
  // The bias of the layer before, one value per channel. It is never added to x, since the batch's
  // mean takes it away, and is part of the running mean alone. Null: none.
  const float* input_bias = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
  // This batch's values, from forward to backward: normalised = x * multiplier + shift.
  float* mean = nullptr;
  float* inverse_deviation = nullptr;
  float* multiplier = nullptr;
  float* shift = nullptr;
  float* scale_gradient = nullptr;
  float* bias_gradient = nullptr;
  // This batch's factors, from the first to the second backward sweep: dx = a * dz + b * x + c.
  float* a = nullptr;
  float* b = nullptr;
  float* c = nullptr;
};

/// An NHWC tensor as rows (images x height x width) of channels; channels are a multiple of 8.
struct Extent {
  int64_t rows = 0;
  int channels = 0;

  constexpr int64_t elements() const { return rows * channels; }
};

struct ImageSize {
  int height = 0;
  int width = 0;

  constexpr int pixels() const { return height * width; }
};

/// Partial sums and counters, shared by all launches of one stream.
struct ReductionScratch {
  float* partial_sums = nullptr;
  unsigned* arrivals = nullptr;  // all 0 between launches
  int multiprocessors = 1;

  static int64_t partial_sums_bytes(int multiprocessors);
  static int64_t arrivals_bytes();
};

/// A batch norm whose output a kernel computes. Where a convolution has left sums of its output and
/// of its square per channel, the kernel takes multiplier and shift from them and leaves the whole
/// state; else launch_batch_statistics() has done so.
struct NormInput {
  BatchNormState state;
  const float* sum = nullptr;
  const float* square_sum = nullptr;
};

/// Mean, inverse deviation, multiplier and shift of x, and the running statistics.
void launch_batch_statistics(Precision precision, const void* x, Extent extent,
                             const BatchNormState& state, const ReductionScratch& scratch,
                             cudaStream_t stream);

/// y = relu?(norm(x) + residual), where the residual is absent, a tensor, or the normalisation of
/// another tensor. `mask`, if given, gets one byte per pack of 16 bytes, one bit per element: y >
/// 0. With `mean_of_pixels`, those of an image, y [images, channels] is the mean over them; this
/// takes a residual that is a tensor, and a ReLU.
struct NormaliseOperands {
  const void* x = nullptr;
  NormInput norm;
  const void* residual = nullptr;
  const NormInput* residual_norm = nullptr;  // not null: the residual is normalised too
  bool relu = false;
  uint8_t* mask = nullptr;
  int mean_of_pixels = 0;
  void* y = nullptr;
};
void launch_normalise(Precision precision, const NormaliseOperands& operands, Extent extent,
                      int multiprocessors, cudaStream_t stream);

/// The form in which the consumers of an output leave its gradient.
enum class Incoming {
  one,  // dy
  two,  // dy + dy_second
  // dy + dy_second, where dy_second [images, (height + 1) / 2, (width + 1) / 2, channels] has the
  // pixels of even rows and columns and is 0 at all others: that of a 1x1 convolution of stride 2.
  two_second_at_even_pixels,
  // dy [images, channels], by the mean over all pixels of the output. Sums alone take this form and
  // the one before, as they leave dz, and not where the residual was normalised.
  of_mean,
};

/// dz = mask * gradient, where the mask is that of the ReLU; from it the gradients of scale and
/// bias and dx.
struct NormBackwardOperands {
  int64_t count = 0;  // values per channel over which the forward statistics were taken
  Incoming incoming = Incoming::one;
  bool relu = true;  // else dz is dy, the only gradient, and there was no residual
  const void* dy = nullptr;
  const void* dy_second = nullptr;
  ImageSize image;  // where `incoming` speaks of pixels
  // As launch_normalise wrote it where it added a residual; null where it added none, so that x and
  // the forward multiplier and shift give the mask.
  const uint8_t* mask = nullptr;
  // Null: behind a residual the sums are then those of dz alone, the gradient of the bias.
  const void* x = nullptr;
  BatchNormState state;
  void* dx = nullptr;
  // Where it is wanted, the sums store `dz`, and always where there was a residual: its gradient. A
  // residual that was normalised in the forward pass has its own x, state and dx.
  void* dz = nullptr;
  const void* residual_x = nullptr;
  BatchNormState residual_state;
  void* residual_dx = nullptr;
};
void launch_norm_backward_sums(Precision precision, const NormBackwardOperands& operands,
                               Extent extent, const ReductionScratch& scratch, cudaStream_t stream);
void launch_norm_backward_apply(Precision precision, const NormBackwardOperands& operands,
                                Extent extent, int multiprocessors, cudaStream_t stream);

}  // namespace nearmetal::cuda
