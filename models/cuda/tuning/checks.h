// Checks the results of candidates: a convolution's against exact sums at sampled positions, those
// of attention against exact ones of some heads.
#pragma once

#include "models/cuda/device/check.h"
#include "models/cuda/libraries/attention.h"
#include "models/cuda/libraries/convolution.h"
#include "models/cuda/tuning/trial_values.h"

namespace nearmetal::cuda {

/// How far the nearest value of the type may be from a number, relative to that.
double rounding_of(Precision precision);

struct CheckResult {
  double relative_error = 0;  // Euclidean norm of the errors over that of the exact values
  double largest_error = 0;   // of one sample, over the root mean square of the exact values
  int64_t not_finite = 0;     // values of the whole result that are NaN or infinite

  /// Finite, with a relative error of at most `allowed`, and no sample far beyond the others?
  bool within(double allowed) const {
    return not_finite == 0 && relative_error <= allowed && largest_error <= 16 * allowed;
  }
  /// Within what rounding to the problem's precision and its length of sum allow?
  bool passes(const ConvolutionProblem& problem) const;
};

/// The errors of samples, added one by one.
class SampleErrors {
 public:
  void add(const Sample& sample);
  CheckResult result(int64_t not_finite) const;

 private:
  double exact_squares_ = 0, error_squares_ = 0, largest_ = 0;
  int64_t count_ = 0;
};

/// Waits for the stream.
Difference difference_between(Content content, Precision precision, const void* reference,
                              const void* other, int64_t bytes, cudaStream_t stream);
int64_t not_finite(Precision precision, const void* values, int64_t count, cudaStream_t stream);
bool have_equal_bits(const void* first, const void* second, int64_t bytes, cudaStream_t stream);

/// As many as take about as long for any problem.
int samples_to_check(const ConvolutionProblem& problem);

/// The result tensor must have been filled with NaN before the convolution, so that what was not
/// written shows. `samples` positions are drawn from a fixed seed; sums are done in fp64.
CheckResult check_convolution(const ConvolutionProblem& problem,
                              const ConvolutionOperands& operands, int samples,
                              cudaStream_t stream);

/// How attention errs, in whichever of its results errs most: y and log_sums, or the three parts of
/// packed_gradient.
struct AttentionError {
  CheckResult worst;
  bool passes = false;  // all within what rounding to the problem's precision allows
};

/// What is checked must have been filled with NaN before, so that what was not written shows. The
/// exact results are those of the first, the middle and the last head, in fp64 on the host, of
/// `packed` and `dy`.
AttentionError check_attention(const AttentionProblem& problem, const AttentionOperands& operands,
                               cudaStream_t stream);

}  // namespace nearmetal::cuda
