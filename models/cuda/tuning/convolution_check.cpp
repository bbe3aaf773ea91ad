#include "models/cuda/tuning/convolution_check.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace nearmetal::cuda {

double rounding_of(Precision precision) {
  switch (precision) {
    case Precision::fp16:
      return 0x1p-11;
    case Precision::bf16:
      return 0x1p-8;
    case Precision::tf32:
      return 0x1p-10;
    case Precision::fp32:
      return 0x1p-23;
  }
  throw std::logic_error("unnamed Precision");
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

}  // namespace nearmetal::cuda
