// The operations of transformers on whole tokens, attention, and the first and last layers of a
// network of sequences, as loops over all threads. Values are fp32, [batch, tokens, features] with
// features innermost.
#pragma once

#include <cstdint>

#include "models/shapes.h"

namespace nearmetal::cpu {

/// y [batch, 1 + tokens, features]: `token` before those of x. `extent` is that of x.
void prepend_token(const TokenExtent& extent, const float* x, const float* token, float* y);
/// dx and the sum over samples of the first token of dy.
void prepend_token_backward(const TokenExtent& extent, const float* dy, float* dx,
                            float* token_gradient);

/// y = x + positions, those the same for every sample; y may be x.
void add_positions(const TokenExtent& extent, const float* x, const float* positions, float* y);
/// out [elements] = the sum of the first so many values of each sample.
void sum_over_samples(const TokenExtent& extent, const float* x, int64_t elements, float* out);

/// y [batch, features] = the first token of each sample.
void first_token(const TokenExtent& extent, const float* x, float* y);
void first_token_backward(const TokenExtent& extent, const float* dy, float* dx);

/// Rows of `features` values each.
template <class T>
struct EmbeddingTables {
  T* words;
  T* positions;
  T* types;
};

/// y [batch, tokens, features] = the rows of each token's word and place, and the first type.
void embed(const TokenExtent& extent, const int32_t* ids,
           const EmbeddingTables<const float>& tables, float* y);
/// The gradients of whole tables, 0 where no token reads. Sums go from token to token, so that they
/// are the same for any number of threads.
void embed_backward(const TokenExtent& extent, const int32_t* ids, const float* dy,
                    const EmbeddingRows& rows, const EmbeddingTables<float>& gradients);

/// Head by head oneDNN's products, and a softmax between; y is [batch, tokens, features].
/// `probabilities`: where they are kept [batch, heads, tokens, tokens], else one matrix for each
/// thread. Throws std::runtime_error where oneDNN fails.
void attention_forward(const AttentionExtent& extent, const float* packed, float* probabilities,
                       bool keeps_probabilities, float* y);
/// From the probabilities that the forward pass kept; `scratch`: a matrix for each thread.
void attention_backward(const AttentionExtent& extent, const float* packed,
                        const float* probabilities, const float* dy, float* scratch,
                        float* packed_gradient);

/// logits [batch, tokens, 2]: of start and end. Losses of each sequence: the mean of the two cross
/// entropies over its tokens with its labels [batch, 2]; `gradient` (null if not wanted) is theirs
/// times `factor`.
void span_loss(const float* logits, const int32_t* labels, int64_t batch, int64_t tokens,
               float factor, float* losses, float* gradient);

}  // namespace nearmetal::cpu
