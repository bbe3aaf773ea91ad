// The operations of transformers on whole tokens, as loops over all threads. Values are fp32,
// [batch, tokens, features] with features innermost.
#pragma once

#include <cstdint>

namespace nearmetal::cpu {

struct TokenExtent {
  int64_t batch = 0, tokens = 0, features = 0;

  int64_t sample_elements() const { return tokens * features; }
};

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

}  // namespace nearmetal::cpu
