// The first and last layers of a network of sequences, as loops over all threads. Values are fp32,
// features innermost.
#pragma once

#include <cstdint>

#include "models/cpu/token_loops.h"
#include "models/graph.h"

namespace nearmetal::cpu {

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

/// logits [batch, tokens, 2]: of start and end. Losses of each sequence: the mean of the two cross
/// entropies over its tokens with its labels [batch, 2]; `gradient` (null if not wanted) is theirs
/// times `factor`.
void span_loss(const float* logits, const int32_t* labels, int64_t batch, int64_t tokens,
               float factor, float* losses, float* gradient);

}  // namespace nearmetal::cpu
