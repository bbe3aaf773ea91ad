// Tokens that are put before others, added to them, or taken from among them, both directions. Sums
// over samples are deterministic. Values of parameters are fp32, their gradients, those of
// matrices, of the type of the activations.
//
// Bytes: each tensor is read or written once, whose copy is the floor.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "models/training_options.h"

namespace nearmetal::cuda {

/// Features are a multiple of 8.
struct TokenExtent {
  int64_t batch = 0, tokens = 0, features = 0;

  constexpr int64_t sample_elements() const { return tokens * features; }
  constexpr int64_t elements() const { return batch * sample_elements(); }
};

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

}  // namespace nearmetal::cuda
