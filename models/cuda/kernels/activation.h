// Bias, ReLU and max pooling behind a convolution or a linear layer without batch norm, and each of
// them alone; both directions. Sums of gradients are deterministic.
//
// Bytes per element of E bytes, whose copy is the floor. Forward: reads E and writes E; pooled, it
// writes E and 1 for each element of the result instead. Backward: reads E of dy, E of y for the
// mask of a ReLU, and writes E; of a pooled gradient it reads E and 1 for each element and writes
// E.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/norm_pool.h"

namespace nearmetal::cuda {

/// relu?(x + bias + residual), where the bias of each channel and the residual, a tensor like x,
/// may be absent (null).
struct Activation {
  const float* bias = nullptr;
  bool relu = false;
  const void* residual = nullptr;  // not of pooling
};

/// `y` may be `x`.
void launch_activation(Precision precision, const void* x, const Activation& activation, void* y,
                       Extent extent, int multiprocessors, cudaStream_t stream);

/// The largest window whose places a byte counts, with one value to spare.
inline constexpr int64_t widest_pool_window = 15;

/// y = max over windows of relu?(x + bias). For each element of y, `winner`, if not null, gets the
/// place of its maximum in the window, counted along the rows, or no_winner where the ReLU stops
/// the gradient. Padding never wins; of equal values of x the first does.
inline constexpr uint8_t no_winner = 255;
void launch_activation_pool(Precision precision, const PoolShape& shape, const void* x,
                            const Activation& activation, void* y, uint8_t* winner,
                            cudaStream_t stream);

struct ActivationGradient {
  const void* dy = nullptr;
  const void* y = nullptr;         // of the ReLU; null where there was none
  void* dx = nullptr;              // null: the gradient of the bias alone is wanted
  float* bias_gradient = nullptr;  // null: not wanted
};
void launch_activation_backward(Precision precision, const ActivationGradient& operands,
                                Extent extent, const ReductionScratch& scratch,
                                cudaStream_t stream);

struct PoolGradientOperands {
  const void* dy = nullptr;
  const uint8_t* winner = nullptr;
  void* dx = nullptr;
  float* bias_gradient = nullptr;  // null: not wanted
};
void launch_activation_pool_backward(Precision precision, const PoolShape& shape,
                                     const PoolGradientOperands& operands,
                                     const ReductionScratch& scratch, cudaStream_t stream);

/// sum = left + right, of a multiple of 8 elements.
void launch_add(Precision precision, const void* left, const void* right, void* sum,
                int64_t elements, cudaStream_t stream);

// x times the standard normal distribution function of x, by erf as in torchvision and Hugging
// Face: cuBLASLt's epilogues approximate it by tanh (cuBLAS documentation, cublasLtEpilogue_t).
//
// Bytes per element of E bytes, whose copy is the floor. Forward: reads E, writes E. Backward:
// reads E of x and E of dy, writes E.

/// y = gelu(x + bias); the bias of each channel may be absent (null). `y` may be `x`.
void launch_gelu(Precision precision, const void* x, const float* bias, void* y, Extent extent,
                 int multiprocessors, cudaStream_t stream);

struct GeluGradient {
  const void* dy = nullptr;
  const void* x = nullptr;
  const float* bias = nullptr;     // as above
  void* dx = nullptr;              // may be `dy`
  float* bias_gradient = nullptr;  // null: not wanted
};
void launch_gelu_backward(Precision precision, const GeluGradient& operands, Extent extent,
                          const ReductionScratch& scratch, cudaStream_t stream);

}  // namespace nearmetal::cuda
