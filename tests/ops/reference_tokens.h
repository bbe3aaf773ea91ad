// The layers of transformers as plain loops over doubles; pixels are tokens, row by row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/ops/reference_layers.h"

namespace nearmetal {

/// Over the channels of each token: (x - mean) / sqrt(variance + epsilon) * scale + bias.
BatchTensor layer_norm(const BatchTensor& x, Values scale, Values bias, double epsilon);
struct LayerNormGradients {
  BatchTensor input;
  std::vector<double> scale, bias;
};
LayerNormGradients layer_norm_gradients(const BatchTensor& x, Values scale, double epsilon,
                                        const BatchTensor& dy);

BatchTensor gelu(const BatchTensor& x);
BatchTensor gelu_gradient(const BatchTensor& x, const BatchTensor& dy);

/// softmax(q k' / sqrt(d)) v. Channels of `packed`: those of q, then k, then v, in each of them
/// head behind head.
BatchTensor attention(const BatchTensor& packed, int64_t heads);
BatchTensor attention_gradient(const BatchTensor& packed, int64_t heads, const BatchTensor& dy);

/// `token` by channel; the gradient is of both.
BatchTensor prepend_token(const BatchTensor& x, Values token);
struct PrependedGradients {
  BatchTensor input;
  std::vector<double> token;
};
PrependedGradients prepend_token_gradients(const BatchTensor& dy, Shape input);

/// `positions` is [tokens, channels]; the gradient is theirs.
BatchTensor add_positions(const BatchTensor& x, Values positions);
std::vector<double> positions_gradient(const BatchTensor& dy);

/// `ids` are [batch, tokens].
BatchTensor token_ids(std::span<const int32_t> ids, int64_t batch);
/// The tables are [rows, channels]; the gradient is of table 0 (words), 1 (positions), 2 (types).
BatchTensor embedding(const BatchTensor& ids, Shape output, Values words, Values positions,
                      Values types);
std::vector<double> embedding_gradient(int table, const BatchTensor& ids, const BatchTensor& dy,
                                       size_t elements);

/// The loss of logits of two channels, start and end: the mean over samples and channels of
/// -log softmax(over tokens)[label]; labels [batch, 2].
double span_loss(const BatchTensor& logits, std::span<const int32_t> labels);
BatchTensor span_loss_gradient(const BatchTensor& logits, std::span<const int32_t> labels);

BatchTensor first_token(const BatchTensor& x);
BatchTensor first_token_gradient(const BatchTensor& dy, Shape input);

}  // namespace nearmetal
