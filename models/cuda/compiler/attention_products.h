// The matrices of attention in memory, and the products between them, for all heads of all samples.
#pragma once

#include <cstdint>

#include "models/cuda/libraries/linear.h"
#include "models/shapes.h"

namespace nearmetal::cuda {

/// The size of scores or probabilities [batch, heads, tokens, row_elements] with aligned rows.
constexpr int64_t score_row_elements(const AttentionExtent& extent) {
  return (extent.tokens + 7) / 8 * 8;
}
constexpr int64_t score_elements(const AttentionExtent& extent) {
  return extent.rows() * score_row_elements(extent);
}

/// Where the matrix of a head of a sample lies in a tensor, in elements.
struct HeadMatrices {
  int64_t first = 0;      // of the first head of the first sample
  int64_t row_step = 0;   // from row to row
  int64_t head_step = 0;  // from head to head
  int64_t sample_step = 0;
};

/// [tokens, head_features] each: of `packed` (part 0 q, 1 k, 2 v), or of [batch, tokens, features].
HeadMatrices part_of_packed(const AttentionExtent& extent, int part);
HeadMatrices heads_of_tokens(const AttentionExtent& extent);
/// [tokens, tokens] each.
HeadMatrices score_matrices(const AttentionExtent& extent);

/// d = a * b, where a and b may be stored transposed, `inner` being the dimension they share.
struct AttentionProduct {
  HeadMatrices a, b, d;
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false, b_transposed = false;
  bool fp32_result = false;
};

/// cuBLASLt takes one step between its matrices: either the heads of a sample are one call, or the
/// samples of a head, whichever needs fewer calls.
struct AttentionCalls {
  ProductShape shape;  // of each call
  int64_t calls = 0;
  int64_t a_step = 0, b_step = 0, d_step = 0;  // from call to call, in elements
};
AttentionCalls attention_calls(const AttentionExtent& extent, const AttentionProduct& product);

}  // namespace nearmetal::cuda
