// Attention of 16-bit types in one kernel forward and two backward, which leave neither scores nor
// probabilities in memory (FlashAttention, arXiv 2205.14135). The backward pass computes them again
// for the keys and values and for the queries: 7 products in place of 5, and sums in a fixed order.
//
// Bytes per token of F features of E bytes. Forward: reads 3 F E, writes F E. Backward: reads 5 F E
// (`packed`, y and dy), writes 3 F E.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/shapes.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

inline constexpr int attention_features = 64;  // of a head: those of all our networks

/// On chips of compute capability 8.0 and later.
constexpr bool fits_attention_kernels(Precision precision, const AttentionExtent& extent) {
  return element_bytes(precision) == 2 && extent.head_features == attention_features;
}

struct AttentionForward {
  const void* packed = nullptr;
  void* y = nullptr;  // [batch, tokens, features]
  // [batch, heads, tokens]: the natural logarithms of the sums of exponentials, as cuDNN keeps
  // them; null: unwanted.
  float* log_sums = nullptr;
};
void launch_attention(Precision precision, const AttentionExtent& extent,
                      const AttentionForward& operands, cudaStream_t stream);

struct AttentionBackward {
  const void* packed = nullptr;
  const void* y = nullptr;
  const void* dy = nullptr;
  const float* log_sums = nullptr;
  float* dots = nullptr;  // scratch of their size
  void* packed_gradient = nullptr;
};
void launch_attention_backward(Precision precision, const AttentionExtent& extent,
                               const AttentionBackward& operands, cudaStream_t stream);

// The softmax of attention between its products, both directions, on matrices in rows of
// `row_elements`.
//
// Bytes per element of E bytes: forward reads 4 and writes E; backward reads 4 and E and writes E.

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
