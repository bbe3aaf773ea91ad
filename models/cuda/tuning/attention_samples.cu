#include <cmath>

#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/tuning/samples.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {
namespace {

constexpr int row_threads = 128;
constexpr uint64_t sample_seed = 78;

// The rows of one head of one sample.
template <class T>
struct HeadOfSample {
  AttentionExtent extent;
  int64_t sample, head;

  __device__ HeadOfSample(const AttentionExtent& extent, int64_t matrix)
      : extent(extent), sample(matrix / extent.heads), head(matrix % extent.heads) {}
  // Part 0 q, 1 k, 2 v.
  __device__ const T* packed(const void* base, int64_t row, int part) const {
    return static_cast<const T*>(base) +
           ((sample * extent.tokens + row) * 3 + part) * extent.features() +
           head * extent.head_features;
  }
  __device__ const T* of_tokens(const void* base, int64_t row) const {
    return static_cast<const T*>(base) + (sample * extent.tokens + row) * extent.features() +
           head * extent.head_features;
  }
};

template <class T>
struct ExactAttention {
  HeadOfSample<T> head;
  AttentionOperands operands;
  double factor;

  __device__ double dot(const T* a, const T* b) const {
    double sum = 0;
    for (int64_t i = 0; i < head.extent.head_features; ++i) {
      sum += static_cast<double>(to_float(a[i])) * static_cast<double>(to_float(b[i]));
    }
    return sum;
  }
  __device__ double score(int64_t query, int64_t key) const {
    return factor *
           dot(head.packed(operands.packed, query, 0), head.packed(operands.packed, key, 1));
  }
  // The gradient of the probability.
  __device__ double gradient(int64_t query, int64_t key) const {
    return dot(head.of_tokens(operands.dy, query), head.packed(operands.packed, key, 2));
  }

  // The logarithm of the sum of exponentials, and the mean gradient of probabilities, of a query.
  struct RowSums {
    double log_sum, mean_gradient;
  };
  __device__ RowSums row_sums(int64_t query, bool backward) const {
    double largest = -INFINITY, sum = 0, weighted = 0;
    for (int64_t key = 0; key < head.extent.tokens; ++key) {
      const double value = score(query, key);
      if (value > largest) {
        const double keep = exp(largest - value);
        sum *= keep;
        weighted *= keep;
        largest = value;
      }
      const double weight = exp(value - largest);
      sum += weight;
      if (backward) weighted += weight * gradient(query, key);
    }
    return {largest + log(sum), weighted / sum};
  }
  __device__ double probability(int64_t query, int64_t key, const RowSums& sums) const {
    return exp(score(query, key) - sums.log_sum);
  }
  __device__ double score_gradient(int64_t query, int64_t key, const RowSums& sums) const {
    return factor * probability(query, key, sums) * (gradient(query, key) - sums.mean_gradient);
  }

  // samples[feature] of the sum over tokens of weights[token] * row_of(token), and what was found.
  template <class RowOf>
  __device__ void add_up(const double* weights, RowOf row_of, const T* found,
                         Sample* samples) const {
    for (int64_t i = threadIdx.x; i < head.extent.head_features; i += row_threads) {
      double sum = 0;
      for (int64_t token = 0; token < head.extent.tokens; ++token) {
        sum += weights[token] * to_float(row_of(token)[i]);
      }
      samples[i] = {sum, to_float(found[i])};
    }
    __syncthreads();
  }
};

// A block has a row.
template <class T>
__global__ void exact_rows_kernel(AttentionOp op, AttentionExtent extent,
                                  AttentionOperands operands, double* weights, Sample* samples) {
  const uint64_t draw = 2 * uint64_t{blockIdx.x};
  const auto matrix = static_cast<int64_t>(substream(sample_seed, draw) % extent.matrices());
  const auto row = static_cast<int64_t>(substream(sample_seed, draw + 1) % extent.tokens);
  const HeadOfSample<T> head(extent, matrix);
  const ExactAttention<T> exact{head, operands,
                                1 / sqrt(static_cast<double>(extent.head_features))};
  double* first = weights + int64_t{2} * blockIdx.x * extent.tokens;
  double* second = first + extent.tokens;
  const auto samples_of = [&](AttentionPart part) {
    return samples + (int64_t{blockIdx.x} * attention_parts + part) * extent.head_features;
  };
  const bool backward = op == AttentionOp::backward;
  __shared__ typename ExactAttention<T>::RowSums sums;
  if (threadIdx.x == 0) sums = exact.row_sums(row, backward);
  __syncthreads();
  const auto packed_row = [&](int part) {
    return [&, part](int64_t token) { return head.packed(operands.packed, token, part); };
  };
  if (!backward) {
    for (int64_t key = threadIdx.x; key < extent.tokens; key += row_threads) {
      first[key] = exact.probability(row, key, sums);
    }
    __syncthreads();
    exact.add_up(first, packed_row(2), head.of_tokens(operands.y, row), samples_of(y_part));
    if (threadIdx.x == 0) {
      *samples_of(log_sum_part) = {sums.log_sum, operands.log_sums[matrix * extent.tokens + row]};
    }
    return;
  }
  for (int64_t key = threadIdx.x; key < extent.tokens; key += row_threads) {
    first[key] = exact.score_gradient(row, key, sums);
  }
  __syncthreads();
  const auto found = [&](int part) { return head.packed(operands.packed_gradient, row, part); };
  exact.add_up(first, packed_row(1), found(0), samples_of(q_part));
  for (int64_t query = threadIdx.x; query < extent.tokens; query += row_threads) {
    const auto of_query = exact.row_sums(query, true);
    first[query] = exact.score_gradient(query, row, of_query);
    second[query] = exact.probability(query, row, of_query);
  }
  __syncthreads();
  exact.add_up(first, packed_row(0), found(1), samples_of(k_part));
  const auto dy_row = [&](int64_t token) { return head.of_tokens(operands.dy, token); };
  exact.add_up(second, dy_row, found(2), samples_of(v_part));
}

}  // namespace

void launch_attention_samples(Precision precision, AttentionOp op, const AttentionExtent& extent,
                              const AttentionOperands& operands, double* weights, Sample* samples,
                              cudaStream_t stream) {
  with_16_bit_type(precision, [&]<class T>() {
    exact_rows_kernel<T>
        <<<sampled_rows, row_threads, 0, stream>>>(op, extent, operands, weights, samples);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
