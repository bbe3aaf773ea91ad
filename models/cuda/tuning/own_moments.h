// Batch norm by second moments, and what it competes with, on the operands of a convolution.
#pragma once

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/tuning/own_kernels.h"

namespace nearmetal::cuda {

/// Whether there are kernels for a batch norm behind this convolution, and room to time them.
bool takes_moments(const ConvolutionProblem& problem, int compute_capability_major);
/// Whether our kernel for both backward products of a pointwise convolution joins gradients, and
/// there is room to time the sweep that it saves.
bool joins_gradients(const ConvolutionProblem& problem);
/// The sweeps of residual_norm_key().
OwnKernel residual_norm_sweeps(const ConvolutionProblem& problem);
/// The kernels of moments_key(), with the products if they are ours.
OwnKernel by_moments(const ConvolutionProblem& problem, MomentsProducts products);
/// The kernels of joined_backward_key() and joined_sums_key(), between blocks that end by second
/// moments.
OwnKernel joined_backward(const ConvolutionProblem& problem, int multiprocessors);
OwnKernel joined_sums(const ConvolutionProblem& problem);

}  // namespace nearmetal::cuda
