// Batch norm by second moments, and what it competes with, on the operands of a convolution.
#pragma once

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/tuning/own_kernels.h"

namespace nearmetal::cuda {

/// Whether there are kernels for a batch norm behind this convolution.
bool takes_moments(const ConvolutionProblem& problem, int compute_capability_major);
/// Of residual_norm_key().
OwnKernel residual_norm_sweeps(const ConvolutionProblem& problem);
/// Of moments_key(), with the products if they are ours.
OwnKernel by_moments(const ConvolutionProblem& problem, MomentsProducts products);
/// Of joined_backward_key() and joined_sums_key(): between blocks that end by second moments.
OwnKernel joined_backward(const ConvolutionProblem& problem, int multiprocessors);
OwnKernel joined_sums(const ConvolutionProblem& problem);

}  // namespace nearmetal::cuda
