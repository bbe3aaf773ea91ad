// Checks attention's results against exact ones for sampled rows, and one run against another.
#pragma once

#include "models/cuda/libraries/attention.h"
#include "models/cuda/tuning/convolution_check.h"

namespace nearmetal::cuda {

/// How attention errs, in whichever of its results errs most: y and log_sums, or the three parts of
/// packed_gradient.
struct AttentionError {
  CheckResult worst;
  bool passes = false;  // all within what rounding to the problem's precision allows
};

/// What is checked must have been filled with NaN before, so that what was not written shows. Rows
/// are drawn from a fixed seed; exact results are sums in fp64 over all tokens, of `packed` and
/// `dy`.
AttentionError check_attention(const AttentionProblem& problem, const AttentionOperands& operands,
                               cudaStream_t stream);

}  // namespace nearmetal::cuda
