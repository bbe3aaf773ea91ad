// Values for kernels that are tried: operands as a step has them, and how far results differ from
// one another or, at sampled places, from exact ones.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/cuda/libraries/operands.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

/// Fills memory with what such a value may hold, the same for the same seed: `scale` times standard
/// normal numbers plus `offset` (of a rectified value none below 0), the mask of such a value, sums
/// over `rows` of such numbers by channel, places in a window of 3x3.
struct TrialValues {
  Content content = Content::numbers;
  Precision precision = Precision::fp32;  // of numbers, or of those of a mask
  uint64_t seed = 0;
  float scale = 1, offset = 0;
  int64_t rows = 1;  // of channel_sums
};
void launch_fill(const TrialValues& values, void* memory, int64_t bytes, cudaStream_t stream);

/// Sums over two results: of numbers the squares of their differences and of the first, of masks
/// and winners the differing bits or bytes and how many there are. Not finite: of either.
struct Difference {
  double squares = 0, reference_squares = 0;
  unsigned long long not_finite = 0;
};
/// Adds to `total`, on the device.
void launch_difference(Content content, Precision precision, const void* reference,
                       const void* other, int64_t bytes, Difference* total, cudaStream_t stream);

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
