#include "models/cpu/token_loops.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>

#include "models/cpu/loops.h"

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

// A matrix whose rows lie `stride` apart.
struct Matrix {
  const float* values;
  int64_t stride;
};

// c [m, n] = factor * a [m, k] * b [k, n], on the calling thread alone; with 'T' a or b is stored
// transposed. Whether it worked.
bool multiply(int64_t m, int64_t n, int64_t k, float factor, char a_stored, Matrix a, char b_stored,
              Matrix b, float* c, int64_t c_stride) {
  return dnnl::sgemm(a_stored, b_stored, m, n, k, factor, a.values, a.stride, b.values, b.stride, 0,
                     c, c_stride) == dnnl::status::success;
}

// Where a head of [batch, tokens, parts x features] begins in the first part.
int64_t offset_of_head(const AttentionExtent& extent, int64_t matrix, int64_t parts = 1) {
  return matrix / extent.heads * extent.tokens * parts * extent.features() +
         matrix % extent.heads * extent.head_features;
}

// q, k and v of one head of one sample, in memory of the layout of `packed`.
template <class T>
struct Head {
  T *q, *k, *v;

  Head(const AttentionExtent& extent, T* packed, int64_t matrix) {
    q = packed + offset_of_head(extent, matrix, 3);
    k = q + extent.features();
    v = k + extent.features();
  }
};

float factor_of(const AttentionExtent& extent) {
  return 1 / std::sqrt(static_cast<float>(extent.head_features));
}

void softmax(int64_t values, float* row) {
  float largest = row[0];
  for (int64_t i = 1; i < values; ++i) largest = std::max(largest, row[i]);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < values; ++i) {
    row[i] = std::exp(row[i] - largest);
    sum += row[i];
  }
  const float inverse = 1 / sum;
#pragma omp simd
  for (int64_t i = 0; i < values; ++i) row[i] *= inverse;
}

// gradient = probabilities * (gradient - sum of both multiplied)
void softmax_backward(int64_t values, const float* probabilities, float* gradient) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < values; ++i) sum += probabilities[i] * gradient[i];
#pragma omp simd
  for (int64_t i = 0; i < values; ++i) gradient[i] = probabilities[i] * (gradient[i] - sum);
}

// body(matrix) for every head of every sample, on all threads; it returns whether it worked.
template <class Body>
void for_each_head(const AttentionExtent& extent, Body body) {
  bool works = true;
#pragma omp parallel for schedule(static) reduction(&& : works)
  for (int64_t matrix = 0; matrix < extent.matrices(); ++matrix) works = body(matrix) && works;
  if (!works) throw std::runtime_error("oneDNN failed in a product of attention");
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
      loss += cross_entropy<2>(logits + first, tokens, labels[2 * sample + end], factor / 2,
                               gradient != nullptr ? gradient + first : nullptr);
    }
    losses[sample] = loss / 2;
  }
}

void attention_forward(const AttentionExtent& extent, const float* packed, float* probabilities,
                       bool keeps_probabilities, float* y) {
  const int64_t tokens = extent.tokens, features = extent.features(), d = extent.head_features;
  for_each_head(extent, [&](int64_t matrix) {
    const int64_t place = keeps_probabilities ? matrix : omp_get_thread_num();
    float* p = probabilities + place * extent.matrix_elements();
    const Head head(extent, packed, matrix);
    const int64_t stride = 3 * features;
    const bool scored = multiply(tokens, tokens, d, factor_of(extent), 'N', {head.q, stride}, 'T',
                                 {head.k, stride}, p, tokens);
    for (int64_t row = 0; row < tokens; ++row) softmax(tokens, p + row * tokens);
    return multiply(tokens, d, tokens, 1, 'N', {p, tokens}, 'N', {head.v, stride},
                    y + offset_of_head(extent, matrix), features) &&
           scored;
  });
}

void attention_backward(const AttentionExtent& extent, const float* packed,
                        const float* probabilities, const float* dy, float* scratch,
                        float* packed_gradient) {
  const int64_t tokens = extent.tokens, features = extent.features(), d = extent.head_features;
  const int64_t stride = 3 * features;
  const float factor = factor_of(extent);
  for_each_head(extent, [&](int64_t matrix) {
    const Matrix p{probabilities + matrix * extent.matrix_elements(), tokens};
    const Matrix head_dy{dy + offset_of_head(extent, matrix), features};
    float* scores = scratch + omp_get_thread_num() * extent.matrix_elements();
    const Matrix ds{scores, tokens};
    const Head head(extent, packed, matrix);
    const Head gradient(extent, packed_gradient, matrix);
    bool works = multiply(tokens, d, tokens, 1, 'T', p, 'N', head_dy, gradient.v, stride);
    works &= multiply(tokens, tokens, d, 1, 'N', head_dy, 'T', {head.v, stride}, scores, tokens);
    for (int64_t row = 0; row < tokens; ++row) {
      softmax_backward(tokens, p.values + row * tokens, scores + row * tokens);
    }
    works &=
        multiply(tokens, d, tokens, factor, 'N', ds, 'N', {head.k, stride}, gradient.q, stride);
    works &=
        multiply(tokens, d, tokens, factor, 'T', ds, 'N', {head.q, stride}, gradient.k, stride);
    return works;
  });
}

}  // namespace nearmetal::cpu
