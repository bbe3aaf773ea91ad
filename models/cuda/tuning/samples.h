// Kernels that check results: exact values at sampled places beside those found, and faults
// counted.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/cuda/libraries/operands.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

struct Sample {
  double exact;
  double found;
};

/// `samples` of the `outputs` of a convolution, each a sum of `terms` products.
struct ConvolutionSamples {
  int samples = 0;
  int64_t outputs = 0, terms = 0;
};
void launch_convolution_samples(Precision precision, ConvolutionOp op,
                                const ConvolutionShape& shape, const ConvolutionOperands& operands,
                                const ConvolutionSamples& which, Sample* samples,
                                cudaStream_t stream);

}  // namespace nearmetal::cuda
