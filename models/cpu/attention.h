// Attention over the tokens of each sample, head by head: oneDNN's products, and a softmax between.
#pragma once

#include <cstdint>

namespace nearmetal::cpu {

struct AttentionExtent {
  int64_t batch = 0, tokens = 0, heads = 0;
  int64_t head_features = 0;

  int64_t features() const { return heads * head_features; }
  int64_t matrices() const { return batch * heads; }  // of probabilities
  int64_t matrix_elements() const { return tokens * tokens; }
};

/// All in fp32, features innermost. `packed` is [batch, tokens, 3 x features]: q, k and v of each
/// token behind one another, in each of them head behind head; y is [batch, tokens, features].
struct AttentionForward {
  const float* packed;
  // Where they are kept [batch, heads, tokens, tokens], else one matrix for each thread.
  float* probabilities;
  bool keeps_probabilities;
  float* y;
};
/// Throws std::runtime_error where oneDNN fails.
void attention_forward(const AttentionExtent& extent, const AttentionForward& operands);

struct AttentionBackward {
  const float* packed;
  const float* probabilities;  // kept by the forward pass
  const float* dy;
  float* scratch;          // a matrix for each thread
  float* packed_gradient;  // as `packed`
};
void attention_backward(const AttentionExtent& extent, const AttentionBackward& operands);

}  // namespace nearmetal::cpu
