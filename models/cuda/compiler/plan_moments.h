// The ops of a batch norm by second moments of its convolution's input
// (kernels/pointwise/second_moments.h).
#pragma once

#include "models/cuda/compiler/planner.h"

namespace nearmetal::cuda {

bool is_by_moments(const Planner& p, const NormPattern& pattern);
/// The pattern that normalises this convolution so; null if none does.
const NormPattern* moments_pattern(const Planner& p, int conv);
/// The convolution of which is_by_moments() holds that reads this pattern's output; -1: none. Its
/// backward pass leaves the gradient there masked by the ReLU, and the pattern's sums.
int moments_behind(const Planner& p, const NormPattern& pattern);

/// The sweep that normalises the input of such a convolution, with its moments.
void forward_norm_with_moments(Planner& p, const NormPattern& pattern, int conv);
void forward_norm_by_moments(Planner& p, const NormPattern& pattern);
void backward_norm_by_moments(Planner& p, const NormPattern& pattern);
void backward_convolution_by_moments(Planner& p, int conv, const NormPattern& pattern);

}  // namespace nearmetal::cuda
