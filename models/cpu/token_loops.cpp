#include "models/cpu/token_loops.h"

#include <algorithm>
#include <cmath>

namespace nearmetal::cpu {
namespace {

// The features that a thread sums by itself: some cache lines of each row.
constexpr int64_t features_at_once = 64;

void add_to(const float* x, int64_t elements, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < elements; ++i) sum[i] += x[i];
}

void clear(float* values, int64_t elements) {
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < elements; ++i) values[i] = 0;
}

// Cross entropy of every second logit: minus log softmax at `label`; its gradient times `factor`.
float cross_entropy(const float* logits, int64_t tokens, int64_t label, float factor,
                    float* gradient) {
  float largest = logits[0], sum = 0;
  for (int64_t t = 1; t < tokens; ++t) largest = std::max(largest, logits[2 * t]);
  for (int64_t t = 0; t < tokens; ++t) sum += std::exp(logits[2 * t] - largest);
  if (gradient != nullptr) {
    for (int64_t t = 0; t < tokens; ++t) {
      const float hot = t == label ? 1.0f : 0.0f;
      gradient[2 * t] = (std::exp(logits[2 * t] - largest) / sum - hot) * factor;
    }
  }
  return std::log(sum) + largest - logits[2 * label];
}

}  // namespace

void prepend_token(const TokenExtent& extent, const float* x, const float* token, float* y) {
  const int64_t read = extent.sample_elements(), written = read + extent.features;
#pragma omp parallel for schedule(static)
  for (int64_t sample = 0; sample < extent.batch; ++sample) {
    float* to = std::copy_n(token, extent.features, y + sample * written);
    std::copy_n(x + sample * read, read, to);
  }
}

void prepend_token_backward(const TokenExtent& extent, const float* dy, float* dx,
                            float* token_gradient) {
  const int64_t written = extent.sample_elements(), read = written + extent.features;
#pragma omp parallel for schedule(static)
  for (int64_t sample = 0; sample < extent.batch; ++sample) {
    std::copy_n(dy + sample * read + extent.features, written, dx + sample * written);
  }
  sum_over_samples({extent.batch, extent.tokens + 1, extent.features}, dy, extent.features,
                   token_gradient);
}

void add_positions(const TokenExtent& extent, const float* x, const float* positions, float* y) {
  const int64_t elements = extent.sample_elements();
#pragma omp parallel for schedule(static)
  for (int64_t sample = 0; sample < extent.batch; ++sample) {
    const float* from = x + sample * elements;
    float* to = y + sample * elements;
#pragma omp simd
    for (int64_t i = 0; i < elements; ++i) to[i] = from[i] + positions[i];
  }
}

void sum_over_samples(const TokenExtent& extent, const float* x, int64_t elements, float* out) {
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (int64_t sample = 0; sample < extent.batch; ++sample) {
      sum += x[sample * extent.sample_elements() + i];
    }
    out[i] = sum;
  }
}

void first_token(const TokenExtent& extent, const float* x, float* y) {
#pragma omp parallel for schedule(static)
  for (int64_t sample = 0; sample < extent.batch; ++sample) {
    std::copy_n(x + sample * extent.sample_elements(), extent.features,
                y + sample * extent.features);
  }
}

void first_token_backward(const TokenExtent& extent, const float* dy, float* dx) {
#pragma omp parallel for schedule(static)
  for (int64_t sample = 0; sample < extent.batch; ++sample) {
    float* rest = std::copy_n(dy + sample * extent.features, extent.features,
                              dx + sample * extent.sample_elements());
    std::fill_n(rest, extent.sample_elements() - extent.features, 0.0f);
  }
}

void embed(const TokenExtent& extent, const int32_t* ids,
           const EmbeddingTables<const float>& tables, float* y) {
  const int64_t features = extent.features;
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < extent.batch * extent.tokens; ++row) {
    const float* const word = tables.words + ids[row] * features;
    const float* const position = tables.positions + row % extent.tokens * features;
    float* const out = y + row * features;
#pragma omp simd
    for (int64_t f = 0; f < features; ++f) out[f] = word[f] + position[f] + tables.types[f];
  }
}

void embed_backward(const TokenExtent& extent, const int32_t* ids, const float* dy,
                    const EmbeddingRows& rows, const EmbeddingTables<float>& gradients) {
  const int64_t features = extent.features;
  clear(gradients.words, rows.words * features);
  clear(gradients.positions, rows.positions * features);
  clear(gradients.types, rows.types * features);
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < features; first += features_at_once) {
    const int64_t count = std::min(features_at_once, features - first);
    for (int64_t row = 0; row < extent.batch * extent.tokens; ++row) {
      const float* const part = dy + row * features + first;
      add_to(part, count, gradients.words + ids[row] * features + first);
      add_to(part, count, gradients.positions + row % extent.tokens * features + first);
      add_to(part, count, gradients.types + first);
    }
  }
}

void span_loss(const float* logits, const int32_t* labels, int64_t batch, int64_t tokens,
               float factor, float* losses, float* gradient) {
#pragma omp parallel for schedule(static)
  for (int64_t sample = 0; sample < batch; ++sample) {
    float loss = 0;
    for (int64_t end = 0; end < 2; ++end) {
      const int64_t first = sample * tokens * 2 + end;
      loss += cross_entropy(logits + first, tokens, labels[2 * sample + end], factor / 2,
                            gradient != nullptr ? gradient + first : nullptr);
    }
    losses[sample] = loss / 2;
  }
}

}  // namespace nearmetal::cpu
