// Checks attention's results against exact ones of some heads.
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

/// What is checked must have been filled with NaN before, so that what was not written shows. The
/// exact results are those of the first, the middle and the last head, in fp64 on the host, of
/// `packed` and `dy`.
AttentionError check_attention(const AttentionProblem& problem, const AttentionOperands& operands,
                               cudaStream_t stream);

}  // namespace nearmetal::cuda
