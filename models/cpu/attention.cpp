#include "models/cpu/attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>

namespace nearmetal::cpu {
namespace {

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

// q, k and v of one head of one sample, in memory of the layout of `packed`.
template <class T>
struct Head {
  T *q, *k, *v;

  Head(const AttentionExtent& extent, T* packed, int64_t matrix) {
    const int64_t features = extent.features();
    q = packed + matrix / extent.heads * extent.tokens * 3 * features +
        matrix % extent.heads * extent.head_features;
    k = q + features;
    v = k + features;
  }
};

// Where a head of [batch, tokens, features] begins.
int64_t offset_of_head(const AttentionExtent& extent, int64_t matrix) {
  return matrix / extent.heads * extent.tokens * extent.features() +
         matrix % extent.heads * extent.head_features;
}

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

void attention_forward(const AttentionExtent& extent, const AttentionForward& operands) {
  const int64_t tokens = extent.tokens, features = extent.features(), d = extent.head_features;
  for_each_head(extent, [&](int64_t matrix) {
    const int64_t place = operands.keeps_probabilities ? matrix : omp_get_thread_num();
    float* p = operands.probabilities + place * extent.matrix_elements();
    const Head head(extent, operands.packed, matrix);
    const int64_t stride = 3 * features;
    const bool scored = multiply(tokens, tokens, d, factor_of(extent), 'N', {head.q, stride}, 'T',
                                 {head.k, stride}, p, tokens);
    for (int64_t row = 0; row < tokens; ++row) softmax(tokens, p + row * tokens);
    return multiply(tokens, d, tokens, 1, 'N', {p, tokens}, 'N', {head.v, stride},
                    operands.y + offset_of_head(extent, matrix), features) &&
           scored;
  });
}

void attention_backward(const AttentionExtent& extent, const AttentionBackward& operands) {
  const int64_t tokens = extent.tokens, features = extent.features(), d = extent.head_features;
  const int64_t stride = 3 * features;
  const float factor = factor_of(extent);
  for_each_head(extent, [&](int64_t matrix) {
    const Matrix p{operands.probabilities + matrix * extent.matrix_elements(), tokens};
    const Matrix dy{operands.dy + offset_of_head(extent, matrix), features};
    float* scores = operands.scratch + omp_get_thread_num() * extent.matrix_elements();
    const Matrix ds{scores, tokens};
    const Head head(extent, operands.packed, matrix);
    const Head gradient(extent, operands.packed_gradient, matrix);
    bool works = multiply(tokens, d, tokens, 1, 'T', p, 'N', dy, gradient.v, stride);
    works &= multiply(tokens, tokens, d, 1, 'N', dy, 'T', {head.v, stride}, scores, tokens);
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
