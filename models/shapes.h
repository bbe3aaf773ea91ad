// Sizes and constants of operations, which graphs have and kernels take: plain types, as nvcc reads
// them once for each chip.
#pragma once

#include <cstdint>

namespace nearmetal {

/// Shape of one image's tensor; the batch dimension belongs to the program. The tokens of a
/// transformer are {features, tokens, 1}: in memory, where channels are innermost, rows of features
/// as pixels are rows of channels. So every operation on tokens takes an image, too, and sees its
/// pixels as tokens, row by row.
struct Shape {
  int64_t channels = 0;
  int64_t height = 1;
  int64_t width = 1;

  int64_t tokens() const { return height * width; }
  int64_t elements() const { return channels * tokens(); }
  bool operator==(const Shape&) const = default;
};

/// Tensors [batch, tokens, features]. GPUs take features that are a multiple of 8.
struct TokenExtent {
  int64_t batch = 0, tokens = 0, features = 0;

  constexpr int64_t sample_elements() const { return tokens * features; }
  constexpr int64_t elements() const { return batch * sample_elements(); }
};

/// The heads of attention over the tokens of each sample. Packed they are [batch, tokens, 3 x
/// features]: q, k and v of each token behind one another, in each of them head behind head.
struct AttentionExtent {
  int64_t batch = 0, tokens = 0, heads = 0;
  int64_t head_features = 0;

  constexpr int64_t features() const { return heads * head_features; }
  constexpr int64_t matrices() const { return batch * heads; }  // of probabilities
  constexpr int64_t matrix_elements() const { return tokens * tokens; }
  constexpr int64_t rows() const { return matrices() * tokens; }  // of all heads
};

/// A square window of a convolution or pooling, the same in both directions.
struct Window {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;

  bool operator==(const Window&) const = default;
};

// Batch norm as in torchvision: running = (1 - momentum) * running + momentum * batch, where the
// running variance takes the unbiased batch variance and normalisation the biased one.
inline constexpr double batch_norm_epsilon = 1e-5;
inline constexpr double batch_norm_momentum = 0.1;

/// Rows of the tables that an embedding reads: of words by the ids of tokens, of positions (the
/// longest sequence) and of types of tokens.
struct EmbeddingRows {
  int64_t words = 0, positions = 0, types = 0;
};

}  // namespace nearmetal
