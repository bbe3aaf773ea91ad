#include "models/cuda/tuning/checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "models/sixteen_bits.h"

namespace nearmetal::cuda {

double rounding_of(Precision precision) {
  constexpr std::array by_precision = {0x1p-23, 0x1p-10, 0x1p-8, 0x1p-11};
  static_assert(by_precision.size() == names_of(Precision{}).size());
  return by_precision.at(static_cast<size_t>(precision));
}

bool CheckResult::passes(const ConvolutionProblem& problem) const {
  // The result is rounded, the operands where the precision rounds them, and an fp32 sum, whose
  // error grows as the square root of its length; tensor cores keep a few bits less.
  const double sum = 16 * std::sqrt(static_cast<double>(problem.terms())) * 0x1p-24;
  return within(rounding_of(problem.precision) + sum);
}

int samples_to_check(const ConvolutionProblem& problem) {
  const int64_t terms = problem.op == ConvolutionOp::backward_weights
                            ? problem.terms()
                            : problem.shape.weight_elements();
  return static_cast<int>(std::clamp(1e9 / static_cast<double>(terms), 256.0, 2048.0));
}

void SampleErrors::add(const Sample& sample) {
  const double error = sample.found - sample.exact;
  exact_squares_ += sample.exact * sample.exact;
  error_squares_ += error * error;
  largest_ = std::max(largest_, std::abs(error));
  ++count_;
}

CheckResult SampleErrors::result(int64_t not_finite) const {
  CheckResult result;
  result.relative_error = std::sqrt(error_squares_ / exact_squares_);
  result.largest_error = largest_ / std::sqrt(exact_squares_ / static_cast<double>(count_));
  result.not_finite = not_finite;
  return result;
}

Difference difference_between(Content content, Precision precision, const void* reference,
                              const void* other, int64_t bytes, cudaStream_t stream) {
  Difference total;
  const DeviceMemory on_device = allocate_device(sizeof(total));
  auto* sums = static_cast<Difference*>(on_device.get());
  NM_CALL(cudaMemsetAsync(sums, 0, sizeof(total), stream));
  launch_difference(content, precision, reference, other, bytes, sums, stream);
  NM_CALL(cudaMemcpyAsync(&total, sums, sizeof(total), cudaMemcpyDeviceToHost, stream));
  NM_CALL(cudaStreamSynchronize(stream));
  return total;
}

int64_t not_finite(Precision precision, const void* values, int64_t count, cudaStream_t stream) {
  const int64_t bytes = count * element_bytes(precision);
  return static_cast<int64_t>(
      difference_between(Content::numbers, precision, values, values, bytes, stream).not_finite);
}

bool have_equal_bits(const void* first, const void* second, int64_t bytes, cudaStream_t stream) {
  // Byte by byte.
  return difference_between(Content::winners, Precision::fp32, first, second, bytes, stream)
             .squares == 0;
}

CheckResult check_convolution(const ConvolutionProblem& problem,
                              const ConvolutionOperands& operands, int samples,
                              cudaStream_t stream) {
  const int64_t outputs = problem.result_elements();
  const void* result = problem.op == ConvolutionOp::backward_data      ? operands.x
                       : problem.op == ConvolutionOp::backward_weights ? operands.weights
                                                                       : operands.y;
  const DeviceMemory on_device = allocate_device(samples * static_cast<int64_t>(sizeof(Sample)));
  launch_convolution_samples(problem.precision, problem.op, problem.shape, operands,
                             {samples, outputs, problem.terms()},
                             static_cast<Sample*>(on_device.get()), stream);
  std::vector<Sample> read(samples);
  NM_CALL(cudaMemcpyAsync(read.data(), on_device.get(), samples * sizeof(Sample),
                          cudaMemcpyDeviceToHost, stream));
  NM_CALL(cudaStreamSynchronize(stream));
  SampleErrors errors;
  for (const Sample& sample : read) errors.add(sample);
  return errors.result(not_finite(problem.precision, result, outputs, stream));
}

namespace {

using Matrix = std::vector<double>;  // row by row

// One head of one sample, [tokens, head_features], from one of `parts` that lie side by side.
Matrix download(const AttentionProblem& problem, const void* base, int64_t head, int parts,
                int part) {
  const AttentionExtent& extent = problem.extent;
  const int64_t size = element_bytes(problem.precision);
  const int64_t head_bytes = size * extent.head_features,
                row_bytes = size * parts * extent.features();
  const char* const first = static_cast<const char*>(base) +
                            head / extent.heads * extent.tokens * row_bytes +
                            part * size * extent.features() + head % extent.heads * head_bytes;
  std::vector<uint16_t> bits(extent.tokens * extent.head_features);
  NM_CALL(cudaMemcpy2D(bits.data(), head_bytes, first, row_bytes, head_bytes, extent.tokens,
                       cudaMemcpyDeviceToHost));
  Matrix values(bits.size());
  std::ranges::transform(bits, values.begin(), [&](uint16_t of) {
    return problem.precision == Precision::fp16 ? to_float(Fp16{of}) : to_float(Bf16{of});
  });
  return values;
}

Matrix transposed(const Matrix& matrix, int64_t rows) {
  const int64_t columns = std::ssize(matrix) / rows;
  Matrix result(matrix.size());
  for (int64_t i = 0; i < std::ssize(matrix); ++i) {
    result[i % columns * rows + i / columns] = matrix[i];
  }
  return result;
}

// `inner`: the columns of a and the rows of b.
Matrix product(const Matrix& a, const Matrix& b, int64_t inner) {
  const int64_t rows = std::ssize(a) / inner, columns = std::ssize(b) / inner;
  Matrix result(rows * columns);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < inner; ++i) {
      const double factor = a[row * inner + i];
      const double* const from = b.data() + i * columns;
      double* const to = result.data() + row * columns;
      for (int64_t column = 0; column < columns; ++column) to[column] += factor * from[column];
    }
  }
  return result;
}

// Turns scores into probabilities, in place, and returns the logarithms of the sums of
// exponentials.
Matrix softmax(Matrix& scores, int64_t tokens) {
  Matrix log_sums;
  for (auto row = scores.begin(); row != scores.end(); row += tokens) {
    const double largest = *std::max_element(row, row + tokens);
    double sum = 0;
    for (int64_t key = 0; key < tokens; ++key) sum += std::exp(row[key] - largest);
    log_sums.push_back(largest + std::log(sum));
    for (int64_t key = 0; key < tokens; ++key) row[key] = std::exp(row[key] - log_sums.back());
  }
  return log_sums;
}

// Turns gradients of probabilities into those of scores, but for their factor, in place.
void softmax_gradient(const Matrix& probabilities, Matrix& gradients, int64_t tokens) {
  for (int64_t row = 0; row < std::ssize(gradients); row += tokens) {
    double mean = 0;
    for (int64_t i = row; i < row + tokens; ++i) mean += probabilities[i] * gradients[i];
    for (int64_t i = row; i < row + tokens; ++i) {
      gradients[i] = probabilities[i] * (gradients[i] - mean);
    }
  }
}

struct Result {
  Matrix exact, found;
  double allowed;
};

std::vector<Result> results_of(const AttentionProblem& problem, const AttentionOperands& operands,
                               int64_t head) {
  const int64_t tokens = problem.extent.tokens, features = problem.extent.head_features;
  const auto packed = [&](const void* base, int part) {
    return download(problem, base, head, 3, part);
  };
  Matrix q = packed(operands.packed, 0);
  const Matrix k = packed(operands.packed, 1), v = packed(operands.packed, 2);
  const double factor = 1 / std::sqrt(static_cast<double>(features));
  for (double& value : q) value *= factor;
  Matrix probabilities = product(q, transposed(k, tokens), features);
  const Matrix log_sums = softmax(probabilities, tokens);
  // Results are sums of products with rounded weights, and rounded themselves; log_sums are fp32.
  const double allowed = 4 * rounding_of(problem.precision);
  if (problem.op == AttentionOp::forward) {
    std::vector<float> found(tokens);
    NM_CALL(cudaMemcpy(found.data(), operands.log_sums + head * tokens, tokens * sizeof(float),
                       cudaMemcpyDeviceToHost));
    return {{product(probabilities, v, tokens), download(problem, operands.y, head, 1, 0), allowed},
            {log_sums, Matrix(found.begin(), found.end()), 0x1p-14}};
  }
  const Matrix dy = download(problem, operands.dy, head, 1, 0);
  Matrix gradients = product(dy, transposed(v, tokens), features);
  softmax_gradient(probabilities, gradients, tokens);
  Matrix dq = product(gradients, k, tokens);
  for (double& value : dq) value *= factor;
  const auto found = [&](int part) { return packed(operands.packed_gradient, part); };
  return {{std::move(dq), found(0), allowed},
          {product(transposed(gradients, tokens), q, tokens), found(1), allowed},
          {product(transposed(probabilities, tokens), dy, tokens), found(2), allowed}};
}

}  // namespace

AttentionError check_attention(const AttentionProblem& problem, const AttentionOperands& operands,
                               cudaStream_t stream) {
  const AttentionExtent& extent = problem.extent;
  const bool backward = problem.op == AttentionOp::backward;
  const int64_t elements = (backward ? 3 : 1) * extent.batch * extent.tokens * extent.features();
  // Waits for the stream.
  const int64_t faults = not_finite(
      problem.precision, backward ? operands.packed_gradient : operands.y, elements, stream);
  std::array<SampleErrors, 3> errors;
  std::vector<double> allowed;
  for (const int64_t head : {int64_t{0}, extent.matrices() / 2, extent.matrices() - 1}) {
    allowed.clear();
    for (const Result& result : results_of(problem, operands, head)) {
      SampleErrors& of_part = errors[allowed.size()];
      for (size_t i = 0; i < result.exact.size(); ++i)
        of_part.add({result.exact[i], result.found[i]});
      allowed.push_back(result.allowed);
    }
  }
  AttentionError error{.worst = {}, .passes = true};
  for (size_t part = 0; part < allowed.size(); ++part) {
    const CheckResult result = errors[part].result(faults);
    error.passes = result.within(allowed[part]) && error.passes;
    if (!(result.relative_error <= error.worst.relative_error)) error.worst = result;
  }
  return error;
}

}  // namespace nearmetal::cuda
