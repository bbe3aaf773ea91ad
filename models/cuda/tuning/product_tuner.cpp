// The choice among cuBLASLt's algorithms.
#include <algorithm>
#include <stdexcept>

#include "models/cuda/tuning/checks.h"
#include "models/cuda/tuning/tuner.h"

namespace nearmetal::cuda {
namespace {

constexpr double slow_beyond = 1.5;  // times the best so far

// A linear layer is a convolution of images of one pixel each.
ConvolutionProblem as_convolution(const LinearProblem& problem) {
  const LinearShape& linear = problem.shape;
  ConvolutionShape shape;
  shape.batch = linear.samples;
  shape.input_channels = linear.inputs;
  shape.output_channels = linear.outputs;
  switch (problem.op) {
    case LinearOp::forward:
      return {ConvolutionOp::forward, shape, problem.precision};
    case LinearOp::weight_gradient:
      return {ConvolutionOp::backward_weights, shape, problem.precision};
    case LinearOp::input_gradient:
      return {ConvolutionOp::backward_data, shape, problem.precision};
  }
  throw std::logic_error("unknown LinearOp");
}

// Bias and residual are zeros, so that the result is that of the convolution.
ProductOperands operands_of(const LinearProblem& problem, const TuningBuffers& buffers) {
  const ConvolutionOperands all = buffers.operands(as_convolution(problem));
  switch (problem.op) {
    case LinearOp::forward:
      return {all.x, all.weights, buffers.result(),
              problem.adds_bias ? buffers.second_y() : nullptr,
              problem.adds_residual ? buffers.second_y() : nullptr};
    case LinearOp::weight_gradient:
      return {all.y, all.x, buffers.result(), nullptr, nullptr};
    case LinearOp::input_gradient:
      return {all.y, all.weights, buffers.result(), nullptr, nullptr};
  }
  throw std::logic_error("unknown LinearOp");
}

Product product_of(cublasLtHandle_t cublas, const LinearProblem& problem, const void* bias) {
  return {cublas, problem.precision, problem.product(), bias, product_workspace};
}

// Milliseconds of one launch, infinite where the algorithm refuses.
double time_of(const Product& product, const ProductOperands& operands, void* workspace,
               Calls calls, cudaStream_t stream) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto launch = [&] {
    if (status == CUBLAS_STATUS_SUCCESS) status = product.try_launch(operands, workspace, stream);
  };
  const double milliseconds = milliseconds_of(launch, calls, stream);
  return status == CUBLAS_STATUS_SUCCESS ? milliseconds : never;
}

}  // namespace

bool Tuner::adopt(const LinearProblem& problem) {
  const std::string key = problem.key();
  if (used_.contains(key)) return true;
  const KernelChoice* choice = known_choice(key);
  if (choice == nullptr) return false;
  const std::string& algorithm = choice->implementation;
  if (!pinned_ && !has_small_clusters(algorithm)) return false;
  // Any address will do as that of a bias.
  if (!product_of(device_.cublas, problem, problem.adds_bias ? this : nullptr).use(algorithm)) {
    if (!pinned_) return false;
    throw std::runtime_error("the pinned plan " + algorithm + " for '" + key +
                             "' does not load here");
  }
  used_[key] = *choice;
  return true;
}

void Tuner::choose(const std::vector<LinearProblem>& problems) {
  std::vector<LinearProblem> unknown;
  std::vector<ConvolutionProblem> sizes;
  for (const LinearProblem& problem : problems) {
    if (adopt(problem)) continue;
    unknown.push_back(problem);
    sizes.push_back(as_convolution(problem));
  }
  if (unknown.empty()) return;
  const TuningBuffers buffers(sizes, device_.stream);
  int64_t zeros = 0;
  for (const ConvolutionProblem& size : sizes) {
    zeros = std::max(zeros, size.shape.output_elements() * element_bytes(size.precision));
  }
  NM_CALL(cudaMemsetAsync(buffers.second_y(), 0, zeros, device_.stream));
  for (const LinearProblem& problem : unknown) tune(problem, buffers);
}

void Tuner::tune(const LinearProblem& problem, const TuningBuffers& buffers) {
  const ProductOperands operands = operands_of(problem, buffers);
  Product product = product_of(device_.cublas, problem, operands.bias);
  const auto time = [&](Calls calls) {
    return time_of(product, operands, buffers.workspace(), calls, device_.stream);
  };
  std::vector<std::pair<double, std::string>> candidates;
  double best = never;
  for (const std::string& algorithm : product.offered(most_algorithms)) {
    if (!product.use(algorithm)) continue;
    double milliseconds = time({.apart = 1, .timed = 1});
    if (milliseconds == never || milliseconds > slow_beyond * best) continue;
    milliseconds = time({.apart = 1, .timed = 5});
    best = std::min(best, milliseconds);
    candidates.emplace_back(milliseconds, algorithm);
  }
  std::ranges::stable_sort(candidates, {}, &std::pair<double, std::string>::first);
  const ConvolutionProblem checked = as_convolution(problem);
  for (const auto& [milliseconds, algorithm] : candidates) {
    if (!product.use(algorithm)) continue;
    NM_CALL(cudaMemsetAsync(buffers.result(), 0xff,
                            checked.result_elements() * element_bytes(problem.precision),
                            device_.stream));
    product.launch(operands, buffers.workspace(), device_.stream);
    const CheckResult check = check_convolution(checked, buffers.operands(checked),
                                                samples_to_check(checked), device_.stream);
    if (!check.passes(checked)) continue;
    used_[problem.key()] = {problem.key(), algorithm, milliseconds * 1e-3, check.relative_error};
    return;
  }
  throw std::runtime_error("of the algorithms that cuBLASLt offers for '" + problem.key() +
                           "' none computes it rightly");
}

}  // namespace nearmetal::cuda
