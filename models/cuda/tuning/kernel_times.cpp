#include "models/cuda/tuning/kernel_times.h"

#include <algorithm>

#include "models/cuda/tuning/own_kernels.h"

namespace nearmetal::cuda {

double KernelTimes::seconds_of(const std::string& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() || !is_usable(found->second) ? never : found->second.seconds;
}

KernelTimes::StemChoice KernelTimes::best_stem(const LoweredStep& step) const {
  StemChoice choice;
  for (const Kernel& kernel : step.kernels) {
    if (!kernel.convolution || kernel.convolution->x != step.images) continue;
    const ConvolutionProblem& problem = kernel.convolution->problem;
    double apart = seconds_of(problem.key()), own = 0;
    if (problem.op == ConvolutionOp::forward) {
      apart = seconds_apart(*kernel.convolution);
      if (const auto fused = kernel.convolution->with_sweep) {
        apart = std::min(apart, seconds_of(problem.with(*fused).key()));
      }
      // Our sweep is not timed where it may not serve.
      if (apart == never) apart = seconds_of(problem.key());
      own = seconds_of(stem_forward_key(problem));
      choice.own_forward = own < apart;
    } else {
      // Timed where it has a rival.
      if (choices_.contains(pool_sweep_key(problem))) apart += seconds_of(pool_sweep_key(problem));
      own = seconds_of(fused_backward_key(problem));
      choice.own_backward = own < apart;
    }
    choice.seconds += std::min(own, apart);
  }
  return choice;
}

double KernelTimes::seconds_apart(const ConvolutionCall& call) const {
  const double convolution = seconds_of(call.problem.key());
  if (!call.with_sweep) return convolution;
  return convolution + seconds_of(forward_sweep_key(call.problem.with(*call.with_sweep)));
}

double KernelTimes::seconds_of_products(const ConvolutionProblem& data) const {
  return seconds_of(data.key()) + seconds_of(data.with(ConvolutionOp::backward_weights).key());
}

std::set<std::string> KernelTimes::faster_with_sweeps(const LoweredStep& step) const {
  std::set<std::string> keys;
  for (const Kernel& kernel : step.kernels) {
    if (!kernel.convolution || !kernel.convolution->with_sweep) continue;
    const ConvolutionCall& call = *kernel.convolution;
    const std::string fused = call.problem.with(*call.with_sweep).key();
    if (seconds_of(fused) < seconds_apart(call)) keys.insert(fused);
  }
  return keys;
}

// Whether a convolution reads the end of a block by second moments, by its shape.
static bool reads_moments(const LoweredStep& step, const MomentsChoices& moments,
                          const ConvolutionShape& shape) {
  return std::ranges::any_of(step.kernels, [&](const Kernel& kernel) {
    if (!kernel.convolution || !moments.contains(kernel.convolution->problem.key())) return false;
    const ConvolutionShape& end = kernel.convolution->problem.shape;
    return end.output_height == shape.input_height && end.output_width == shape.input_width &&
           end.output_channels == shape.input_channels;
  });
}

std::set<std::string> KernelTimes::faster_with_fused_backward(const LoweredStep& step,
                                                              const MomentsChoices& moments) const {
  std::set<std::string> keys;
  for (const Kernel& kernel : step.kernels) {
    if (!kernel.convolution || kernel.convolution->problem.op != ConvolutionOp::backward_data) {
      continue;
    }
    const ConvolutionProblem& data = kernel.convolution->problem;
    const double apart = seconds_of_products(data) + seconds_of(apply_sweep_key(data));
    double fused = seconds_of(fused_backward_key(data));
    const double joined = seconds_of(joined_backward_key(data));
    if (fused != never && joined != never && reads_moments(step, moments, data.shape)) {
      fused = joined - seconds_of(joined_sums_key(data));
    }
    if (fused < apart) keys.insert(data.key());
  }
  return keys;
}

MomentsChoices KernelTimes::faster_by_moments(const LoweredStep& step) const {
  MomentsChoices faster;
  for (const Kernel& kernel : step.kernels) {
    if (!kernel.convolution || kernel.convolution->problem.op != ConvolutionOp::forward ||
        kernel.convolution->with_sweep != ConvolutionOp::forward_statistics) {
      continue;
    }
    const ConvolutionCall& call = *kernel.convolution;
    const ConvolutionProblem data = call.problem.with(ConvolutionOp::backward_data);
    const double products = seconds_of_products(data);
    const double fused = seconds_of(fused_backward_key(data));
    const double forward =
        std::min(seconds_of(call.problem.with(ConvolutionOp::forward_statistics).key()),
                 seconds_apart(call));
    const double from_output = forward + seconds_of(residual_norm_key(call.problem)) +
                               std::min(fused, products + seconds_of(apply_sweep_key(data)));
    // The kernel that forms the gradient, too, computes both products without that.
    const bool own = fused != never;
    const double by_moments = seconds_of(moments_key(call.problem)) + (own ? 0 : products);
    if (by_moments >= from_output) continue;
    faster[call.problem.key()] = own ? MomentsProducts::own : MomentsProducts::cudnn;
  }
  return faster;
}

}  // namespace nearmetal::cuda
