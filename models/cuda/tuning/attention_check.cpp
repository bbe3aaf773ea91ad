#include "models/cuda/tuning/attention_check.h"

namespace nearmetal::cuda {
namespace {

SampleErrors errors_of(const std::vector<Sample>& samples, AttentionPart part,
                       int64_t head_features) {
  const int64_t values = part == log_sum_part ? 1 : head_features;
  SampleErrors errors;
  for (int64_t row = 0; row < sampled_rows; ++row) {
    const Sample* first = samples.data() + (row * attention_parts + part) * head_features;
    for (int64_t i = 0; i < values; ++i) errors.add(first[i]);
  }
  return errors;
}

// Results are sums of products with rounded weights, and rounded themselves; log_sums are fp32.
double allowed_error(Precision precision, AttentionPart part) {
  if (part == log_sum_part) return 0x1p-14;
  return 4 * rounding_of(precision);
}

}  // namespace

AttentionError check_attention(const AttentionProblem& problem, const AttentionOperands& operands,
                               cudaStream_t stream) {
  const AttentionExtent& extent = problem.extent;
  const int64_t sample_count = sampled_rows * attention_parts * extent.head_features;
  const DeviceMemory device_samples =
      allocate_device(sample_count * static_cast<int64_t>(sizeof(Sample)));
  const DeviceMemory weights =
      allocate_device(2 * sampled_rows * extent.tokens * static_cast<int64_t>(sizeof(double)));
  launch_attention_samples(problem.precision, problem.op, extent, operands,
                           static_cast<double*>(weights.get()),
                           static_cast<Sample*>(device_samples.get()), stream);
  const std::vector<Sample> samples = read_samples(device_samples, sample_count, stream);

  const bool backward = problem.op == AttentionOp::backward;
  const int64_t elements = (backward ? 3 : 1) * extent.batch * extent.tokens * extent.features();
  const int64_t faults = not_finite(
      problem.precision, backward ? operands.packed_gradient : operands.y, elements, stream);
  AttentionError error{.worst = {}, .passes = true};
  const std::vector<AttentionPart> parts =
      backward ? std::vector{q_part, k_part, v_part} : std::vector{y_part, log_sum_part};
  for (const AttentionPart part : parts) {
    const CheckResult result = errors_of(samples, part, extent.head_features).result(faults);
    error.passes = result.within(allowed_error(problem.precision, part)) && error.passes;
    if (!(result.relative_error <= error.worst.relative_error)) error.worst = result;
  }
  return error;
}

}  // namespace nearmetal::cuda
