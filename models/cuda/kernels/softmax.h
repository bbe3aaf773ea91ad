// The softmax of attention between its products, both directions, on matrices in rows of
// `row_elements`.
//
// Bytes per element of E bytes: forward reads 4 and writes E; backward reads 4 and E and writes E.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/training_options.h"

namespace nearmetal::cuda {

/// `rows` of `values`, each `row_elements` behind the one before.
struct SoftmaxShape {
  int64_t rows = 0;
  int values = 0;
  int row_elements = 0;
};

/// probabilities = softmax(factor * scores), of fp32 scores; of fp32 they may be the same memory.
void launch_softmax(Precision precision, const SoftmaxShape& shape, const float* scores,
                    float factor, void* probabilities, cudaStream_t stream);
/// score_gradient = factor * p * (gradient - sum over the row of p * gradient), where `gradient` is
/// that of the probabilities p, in fp32; of fp32 they may be the same memory.
void launch_softmax_backward(Precision precision, const SoftmaxShape& shape,
                             const void* probabilities, const float* gradient, float factor,
                             void* score_gradient, cudaStream_t stream);

}  // namespace nearmetal::cuda
