#include "models/cpu/token_loops.h"

#include <algorithm>

namespace nearmetal::cpu {

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

}  // namespace nearmetal::cpu
