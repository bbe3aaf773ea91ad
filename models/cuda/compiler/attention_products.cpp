#include "models/cuda/compiler/attention_products.h"

namespace nearmetal::cuda {

HeadMatrices part_of_packed(const AttentionExtent& extent, int part) {
  const int64_t features = extent.features();
  return {part * features, 3 * features, extent.head_features, extent.tokens * 3 * features};
}

HeadMatrices heads_of_tokens(const AttentionExtent& extent) {
  const int64_t features = extent.features();
  return {0, features, extent.head_features, extent.tokens * features};
}

HeadMatrices score_matrices(const AttentionExtent& extent) {
  const int64_t row = score_row_elements(extent), matrix = extent.tokens * row;
  return {0, row, matrix, extent.heads * matrix};
}

AttentionCalls attention_calls(const AttentionExtent& extent, const AttentionProduct& product) {
  const auto& [a, b, d, rows, columns, inner, a_transposed, b_transposed, fp32_result] = product;
  AttentionCalls found;
  found.shape = {rows,       columns,    inner,      a_transposed, b_transposed,
                 a.row_step, b.row_step, d.row_step, fp32_result};
  found.shape.alignment_bytes = 16;  // heads are a multiple of 8 elements apart
  const bool heads_at_once = extent.heads >= extent.batch;
  const auto inner_step = [=](const HeadMatrices& m) {
    return heads_at_once ? m.head_step : m.sample_step;
  };
  const auto outer_step = [=](const HeadMatrices& m) {
    return heads_at_once ? m.sample_step : m.head_step;
  };
  found.shape.count = heads_at_once ? extent.heads : extent.batch;
  found.shape.a_step = inner_step(a);
  found.shape.b_step = inner_step(b);
  found.shape.d_step = inner_step(d);
  found.calls = heads_at_once ? extent.batch : extent.heads;
  found.a_step = outer_step(a);
  found.b_step = outer_step(b);
  found.d_step = outer_step(d);
  return found;
}

}  // namespace nearmetal::cuda
