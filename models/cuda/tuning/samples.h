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

/// What is sampled of attention: a row of each, of as many values as a head has features, but for
/// log_sums. Forward leaves y and log_sums, backward the other three.
enum AttentionPart { y_part, q_part, k_part, v_part, log_sum_part, attention_parts };

inline constexpr int sampled_rows = 64;

/// `weights`: [sampled_rows, 2, tokens]; `samples`: [sampled_rows, attention_parts, head_features].
/// For types of 16 bits.
void launch_attention_samples(Precision precision, AttentionOp op, const AttentionExtent& extent,
                              const AttentionOperands& operands, double* weights, Sample* samples,
                              cudaStream_t stream);

}  // namespace nearmetal::cuda
