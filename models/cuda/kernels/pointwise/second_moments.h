// Batch norm behind a 1x1 convolution y = W z, without y: its statistics follow from the mean and
// the second moments of z before the convolution runs, and its backward pass needs neither y nor
// the gradient dy there. For convolutions that widen, whose y is larger than z, in 16 bits, on
// compute capability 9.0. z is the ReLU of another batch norm, formed on the way.
//
// With m the mean of the n rows of z, and C = sum (z - m)(z - m)':
//   mean of y = W m, variance = diag(W C W') / n, out = a y + shift with a = scale / deviation.
// With dz [n, outputs] the gradient behind the batch norm, D = sum dz and Q = dz' z - D m':
//   P = rowsum(W * Q) = sum dz (y - mean), from which finish_backward() takes a, b, c,
//   dW = a Q + b W C (rows scaled), dx = dz (a W) + z M + k with M = W' diag(b) W, k = W' c.
#pragma once

#include "models/cuda/kernels/batch_norm.h"

namespace nearmetal::cuda {

struct MomentsShape {
  int64_t rows = 0;  // images x height x width
  int inputs = 0, outputs = 0;
};

/// Whether these kernels, and launch_pointwise_forward(), compute this shape on this device.
bool moments_fit(Precision precision, const MomentsShape& shape, int compute_capability_major);

/// Bytes of `partial_sums`.
int64_t second_moments_scratch_bytes(const MomentsShape& shape, int multiprocessors);

/// Device addresses, fp32.
struct InputMoments {
  float* mean = nullptr;     // [inputs]
  float* central = nullptr;  // C [inputs, inputs]
};
struct SecondMomentsOperands {
  const void* y = nullptr;  // [rows, inputs], the output of a convolution
  NormInput norm;           // the batch norm between it and z
  void* z = nullptr;        // relu(norm(y)), equal to that of launch_normalise()
  InputMoments moments;     // of z as it is stored
  float* partial_sums = nullptr;
};
void launch_second_moments(Precision precision, const SecondMomentsOperands& operands,
                           const MomentsShape& shape, int multiprocessors, cudaStream_t stream);

struct MomentsNormOperands {
  InputMoments moments;
  const void* weights = nullptr;  // W [outputs, inputs]
  BatchNormState state;
  float* product = nullptr;        // W C [outputs, inputs], for the backward pass
  void* scaled_weights = nullptr;  // a W [outputs, inputs], of the type of W
};
/// Leaves the state of the batch norm, running statistics included, and what its backward pass
/// takes.
void launch_moments_statistics(Precision precision, const MomentsNormOperands& operands,
                               const MomentsShape& shape, cudaStream_t stream);

struct MomentsGradientOperands {
  const float* mean = nullptr;  // of z [inputs]
  const void* weights = nullptr;
  BatchNormState state;             // with D as its bias_gradient
  const float* product = nullptr;   // W C
  void* weight_gradient = nullptr;  // dz' z, and afterwards dW
  float* matrix = nullptr;          // M [inputs, inputs]
  float* vector = nullptr;          // k [inputs]
  unsigned* largest = nullptr;      // the bits of the largest |M|
};
/// dW, the gradient of scale, and M and k.
void launch_moments_gradient(Precision precision, const MomentsGradientOperands& operands,
                             const MomentsShape& shape, cudaStream_t stream);

/// The batch norm and ReLU in front of the convolution, z = relu(norm(x)).
struct MomentsSumsOperands {
  const void* x = nullptr;  // [rows, inputs]
  BatchNormState state;
  const float* matrix = nullptr;  // as launch_moments_gradient() left them
  const float* vector = nullptr;
  const unsigned* largest = nullptr;
  void* dz = nullptr;  // [rows, inputs]: dz (a W), and afterwards mask * (dz (a W) + z M + k)
};
/// The gradient behind that batch norm, masked by the ReLU, and what launch_norm_backward_sums()
/// leaves of it.
void launch_moments_sums(Precision precision, const MomentsSumsOperands& operands, int64_t rows,
                         int inputs, const ReductionScratch& scratch, cudaStream_t stream);

// The forward pass of a 1x1 convolution of stride 1 in one kernel with what follows it: batch norm,
// residual add and ReLU. The batch norm's coefficients are known before (second_moments.h), so that
// the convolution's output is never stored. In 16 bits, on compute capability 9.0.

struct PointwiseForwardOperands {
  const void* x = nullptr;                   // [rows, inputs]
  const void* weights = nullptr;             // [outputs, inputs]
  BatchNormState state;                      // with multiplier and shift
  const void* residual = nullptr;            // [rows, outputs]
  const NormInput* residual_norm = nullptr;  // not null: the residual is normalised, too
  void* y = nullptr;                         // [rows, outputs]
  uint8_t* mask = nullptr;                   // as that of launch_normalise()
};

/// For the shapes of moments_fit().
void launch_pointwise_forward(Precision precision, const PointwiseForwardOperands& operands,
                              int64_t rows, int inputs, int multiprocessors, cudaStream_t stream);

}  // namespace nearmetal::cuda
