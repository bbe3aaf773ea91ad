// Tokens that are put before others, added to them, or taken from among them, both directions. Sums
// over samples are deterministic. Values of parameters are fp32, their gradients, those of
// matrices, of the type of the activations.
//
// Bytes: each tensor is read or written once, whose copy is the floor.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/shapes.h"
#include "models/training_options.h"

namespace nearmetal::cuda {

/// y [batch, 1 + tokens, features]: `token`, then x [batch, tokens, features].
void launch_prepend_token(Precision precision, const TokenExtent& extent, const void* x,
                          const float* token, void* y, cudaStream_t stream);
/// dx = dy without the first token of each sample; its sum over samples is the token's gradient.
void launch_prepend_token_backward(Precision precision, const TokenExtent& extent, const void* dy,
                                   void* dx, void* token_gradient, cudaStream_t stream);

/// y = x + positions [tokens, features].
void launch_add_positions(Precision precision, const TokenExtent& extent, const void* x,
                          const float* positions, void* y, cudaStream_t stream);
/// gradient [tokens, features] = sum of dy over samples.
void launch_positions_gradient(Precision precision, const TokenExtent& extent, const void* dy,
                               void* gradient, cudaStream_t stream);

/// y [batch, features] = the first token of each sample of x.
void launch_first_token(Precision precision, const TokenExtent& extent, const void* x, void* y,
                        cudaStream_t stream);
/// dx = dy at the first token of each sample, 0 at the others.
void launch_first_token_backward(Precision precision, const TokenExtent& extent, const void* dy,
                                 void* dx, cudaStream_t stream);

// The tables that ids of tokens are looked up in, both directions. Values of tables are fp32, their
// gradients of the type of the activations. Sums go over tokens in their order, whatever their ids.
//
// Bytes of so many tokens of F features of E bytes. Forward: reads 4 F for each word that occurs,
// writes F E a token. Backward: reads F E a token twice, writes all rows of the tables once: with
// 30,522 words far more than a step reads.

/// Rows of features; of types there is the first alone.
struct EmbeddingValues {
  const float* words = nullptr;
  const float* positions = nullptr;
  const float* types = nullptr;
};

/// y [batch, tokens, features] = the rows of each token's word and place, and of the first type.
void launch_embedding(Precision precision, const TokenExtent& extent, const int32_t* ids,
                      const EmbeddingValues& tables, void* y, cudaStream_t stream);

/// Tokens are put in the order of their words by parts: a word and a place in one take 32 bits, of
/// which the largest value is no token.
constexpr int sorted_tokens = 4096, sorted_token_bits = 12;
constexpr int64_t most_words = (int64_t{1} << (32 - sorted_token_bits)) - 1;
constexpr int64_t sorted_parts(const TokenExtent& extent) {
  return (extent.batch * extent.tokens + sorted_tokens - 1) / sorted_tokens;
}
/// The size of the scratch of launch_words_gradient().
constexpr int64_t sorted_bytes(const TokenExtent& extent) {
  return sorted_parts(extent) * sorted_tokens * static_cast<int64_t>(sizeof(uint32_t));
}

/// gradient [words, features] = for each word the sum of dy over its tokens; 0 where none has it.
void launch_words_gradient(Precision precision, const TokenExtent& extent, const int32_t* ids,
                           int64_t words, const void* dy, uint32_t* sorted, void* gradient,
                           cudaStream_t stream);
/// gradient [positions, features] = sum of dy over samples; `exact` [tokens, features] gets it
/// before it is rounded.
void launch_places_gradient(Precision precision, const TokenExtent& extent, int64_t positions,
                            const void* dy, float* exact, void* gradient, cudaStream_t stream);
/// gradient [types, features]: that of the first is the sum of all in `exact`.
void launch_types_gradient(Precision precision, const TokenExtent& extent, int64_t types,
                           const float* exact, void* gradient, cudaStream_t stream);

}  // namespace nearmetal::cuda
