// Attention of 16-bit types in one kernel forward and two backward, which leave neither scores nor
// probabilities in memory (FlashAttention, arXiv 2205.14135). The backward pass computes them again
// for the keys and values and for the queries: 7 products in place of 5, and sums in a fixed order.
//
// Bytes per token of F features of E bytes. Forward: reads 3 F E, writes F E. Backward: reads 5 F E
// (`packed`, y and dy), writes 3 F E.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/training_options.h"

namespace nearmetal::cuda {

/// `packed` is [batch, tokens, 3 x features]: q, k and v of each token behind one another, in each
/// of them head behind head.
struct AttentionExtent {
  int64_t batch = 0, tokens = 0, heads = 0;
  int64_t head_features = 0;

  constexpr int64_t features() const { return heads * head_features; }
  constexpr int64_t matrices() const { return batch * heads; }
  constexpr int64_t rows() const { return matrices() * tokens; }  // of all heads
};

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

}  // namespace nearmetal::cuda
