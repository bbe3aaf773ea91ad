#include <algorithm>
#include <cmath>
#include <vector>

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/tuning/attention_check.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {
namespace {

constexpr int row_threads = 128;
constexpr int sampled_rows = 64;
constexpr uint64_t sample_seed = 78;

struct Sample {
  double exact;
  double found;
};

// What is sampled: a row of each, of as many values as a head has features, but for log_sums.
enum Part { y_part, q_part, k_part, v_part, log_sum_part, part_count };

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

// A block has a row. `weights`: two numbers for each token of each row; `samples`: of each part of
// each row, head_features of them.
template <class T>
__global__ void exact_rows_kernel(AttentionProblem problem, AttentionOperands operands,
                                  double* weights, Sample* samples) {
  const AttentionExtent extent = problem.extent;
  const uint64_t draw = 2 * uint64_t{blockIdx.x};
  const auto matrix = static_cast<int64_t>(substream(sample_seed, draw) % extent.matrices());
  const auto row = static_cast<int64_t>(substream(sample_seed, draw + 1) % extent.tokens);
  const HeadOfSample<T> head(extent, matrix);
  const ExactAttention<T> exact{head, operands,
                                1 / sqrt(static_cast<double>(extent.head_features))};
  double* first = weights + int64_t{2} * blockIdx.x * extent.tokens;
  double* second = first + extent.tokens;
  const auto samples_of = [&](Part part) {
    return samples + (int64_t{blockIdx.x} * part_count + part) * extent.head_features;
  };
  const bool backward = problem.op == AttentionOp::backward;
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

// Adds to `total` the values that are not finite, or, with `other`, those that differ in bits.
template <class T>
__global__ void count_faults_kernel(const T* values, const T* other, int64_t count,
                                    unsigned long long* total) {
  unsigned long long mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * row_threads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * row_threads) {
    if (other == nullptr) {
      mine += isfinite(to_float(values[i])) ? 0 : 1;
    } else {
      mine += reinterpret_cast<const uint16_t*>(values)[i] ==
                      reinterpret_cast<const uint16_t*>(other)[i]
                  ? 0
                  : 1;
    }
  }
  if (mine != 0) atomicAdd(total, mine);
}

template <class T>
int64_t faults(const T* values, const T* other, int64_t count, cudaStream_t stream) {
  const DeviceMemory device_total = allocate_device(sizeof(unsigned long long));
  NM_CALL(cudaMemsetAsync(device_total.get(), 0, sizeof(unsigned long long), stream));
  count_faults_kernel<<<1024, row_threads, 0, stream>>>(
      values, other, count, static_cast<unsigned long long*>(device_total.get()));
  NM_CHECK_LAUNCH();
  unsigned long long total = 0;
  NM_CALL(
      cudaMemcpyAsync(&total, device_total.get(), sizeof(total), cudaMemcpyDeviceToHost, stream));
  NM_CALL(cudaStreamSynchronize(stream));
  return static_cast<int64_t>(total);
}

// Errors of one part of all rows.
CheckResult errors_of(const std::vector<Sample>& samples, Part part, int64_t head_features) {
  const int64_t values = part == log_sum_part ? 1 : head_features;
  double exact_squares = 0, error_squares = 0, largest = 0;
  for (int64_t row = 0; row < sampled_rows; ++row) {
    const Sample* first = samples.data() + (row * part_count + part) * head_features;
    for (int64_t i = 0; i < values; ++i) {
      const double error = first[i].found - first[i].exact;
      exact_squares += first[i].exact * first[i].exact;
      error_squares += error * error;
      largest = std::max(largest, std::abs(error));
    }
  }
  CheckResult result;
  result.relative_error = std::sqrt(error_squares / exact_squares);
  result.largest_error =
      largest / std::sqrt(exact_squares / static_cast<double>(values * sampled_rows));
  return result;
}

// Results are sums of products with rounded weights, and rounded themselves; log_sums are fp32.
double allowed_error(Precision precision, Part part) {
  if (part == log_sum_part) return 0x1p-14;
  return 4 * (precision == Precision::fp16 ? 0x1p-11 : 0x1p-8);
}

}  // namespace

AttentionError check_attention(const AttentionProblem& problem, const AttentionOperands& operands,
                               cudaStream_t stream) {
  const AttentionExtent& extent = problem.extent;
  const int64_t sample_count = sampled_rows * part_count * extent.head_features;
  const auto sample_bytes = sample_count * static_cast<int64_t>(sizeof(Sample));
  const DeviceMemory device_samples = allocate_device(sample_bytes);
  const DeviceMemory weights =
      allocate_device(2 * sampled_rows * extent.tokens * static_cast<int64_t>(sizeof(double)));
  const bool backward = problem.op == AttentionOp::backward;
  const int64_t elements = (backward ? 3 : 1) * extent.batch * extent.tokens * extent.features();
  int64_t not_finite = 0;
  with_element_type(problem.precision, [&]<class T>() {
    exact_rows_kernel<T><<<sampled_rows, row_threads, 0, stream>>>(
        problem, operands, static_cast<double*>(weights.get()),
        static_cast<Sample*>(device_samples.get()));
    NM_CHECK_LAUNCH();
    const void* result = backward ? operands.packed_gradient : operands.y;
    not_finite = faults<T>(static_cast<const T*>(result), nullptr, elements, stream);
  });
  std::vector<Sample> samples(sample_count);
  NM_CALL(cudaMemcpyAsync(samples.data(), device_samples.get(), sample_bytes,
                          cudaMemcpyDeviceToHost, stream));
  NM_CALL(cudaStreamSynchronize(stream));
  AttentionError error{.worst = {}, .passes = true};
  const std::vector<Part> parts =
      backward ? std::vector{q_part, k_part, v_part} : std::vector{y_part, log_sum_part};
  for (const Part part : parts) {
    CheckResult result = errors_of(samples, part, extent.head_features);
    result.not_finite = not_finite;
    error.passes = result.within(allowed_error(problem.precision, part)) && error.passes;
    if (!(result.relative_error <= error.worst.relative_error)) error.worst = result;
  }
  return error;
}

bool are_equal(const void* first, const void* second, int64_t elements, cudaStream_t stream) {
  return faults(static_cast<const __half*>(first), static_cast<const __half*>(second), elements,
                stream) == 0;
}

}  // namespace nearmetal::cuda
