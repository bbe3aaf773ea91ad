#include <algorithm>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/kernels/images.h"
#include "models/cuda/tuning/own_moments.h"

namespace nearmetal::cuda {
namespace {

constexpr int norm_arrays = 13;

}  // namespace

DeviceMemory random_values(Precision precision, int64_t elements, uint64_t seed,
                           cudaStream_t stream) {
  const int line = 1024;
  const ImageLayout layout{(elements + line - 1) / line, 1, 1, line, 1, 1};
  DeviceMemory memory = allocate_device(layout.stored_elements() * element_bytes(precision));
  launch_synthetic_images(precision, layout, seed, memory.get(), stream);
  return memory;
}

TuningBuffers::TuningBuffers(const std::vector<ConvolutionProblem>& problems,
                             int compute_capability_major, int multiprocessors, cudaStream_t stream)
    : multiprocessors_(multiprocessors) {
  int64_t x_size = 1, weight_size = 1, y_size = 1, moments_y_size = 1;
  for (const ConvolutionProblem& problem : problems) {
    const ConvolutionShape& shape = problem.shape;
    x_size = std::max(x_size, shape.input_elements());
    weight_size = std::max(weight_size, shape.weight_elements());
    y_size = std::max(y_size, shape.output_elements());
    if (takes_moments(problem, compute_capability_major)) {
      moments_y_size = std::max(moments_y_size, shape.output_elements());
    }
    channels_ = std::max({channels_, shape.input_channels, shape.output_channels});
  }
  const Precision precision = problems.front().precision;
  x_ = random_values(precision, x_size, 1, stream);
  weights_ = random_values(precision, weight_size, 2, stream);
  y_ = random_values(precision, y_size, 3, stream);
  second_y_ = random_values(precision, y_size, 5, stream);
  result_ = allocate_device(std::max({x_size, weight_size, y_size}) * element_bytes(precision));
  second_result_ =
      allocate_device(std::max(weight_size, moments_y_size) * element_bytes(precision));
  sums_ = allocate_device(2 * channels_ * sizeof(float));
  workspace_ = allocate_device(workspace_limit(precision));
  const int64_t reduction_bytes =
      ReductionScratch::partial_sums_bytes(multiprocessors) + ReductionScratch::arrivals_bytes();
  reduction_ = allocate_device(reduction_bytes);
  NM_CALL(cudaMemsetAsync(reduction_.get(), 0, reduction_bytes, stream));
  norm_ = random_values(Precision::fp32, 2 * norm_arrays * channels_, 4, stream);
}

ConvolutionOperands TuningBuffers::operands(const ConvolutionProblem& problem) const {
  ConvolutionOperands operands{x_.get(), weights_.get(), y_.get(), nullptr, nullptr};
  switch (problem.op) {
    case ConvolutionOp::backward_data:
      operands.x = result_.get();
      break;
    case ConvolutionOp::backward_weights:
      operands.weights = result_.get();
      break;
    case ConvolutionOp::forward_statistics:
      operands.sum = sums_.get();
      operands.square_sum = static_cast<float*>(sums_.get()) + problem.shape.output_channels;
      [[fallthrough]];
    case ConvolutionOp::forward:
      operands.y = result_.get();
      break;
    case ConvolutionOp::forward_residual:
      operands.residual = y_.get();
      [[fallthrough]];
    case ConvolutionOp::forward_bias:
    case ConvolutionOp::forward_activation:
      operands.y = result_.get();
      operands.bias = second_y_.get();
      break;
  }
  return operands;
}

ReductionScratch TuningBuffers::scratch() const {
  auto* partial = static_cast<char*>(reduction_.get());
  return {
      reinterpret_cast<float*>(partial),
      reinterpret_cast<unsigned*>(partial + ReductionScratch::partial_sums_bytes(multiprocessors_)),
      multiprocessors_};
}

BatchNormState TuningBuffers::norm_at(int index) const {
  float* first = static_cast<float*>(norm_.get()) + index * norm_arrays * channels_;
  const auto array = [&](int i) { return first + i * channels_; };
  BatchNormState state;
  state.scale = array(0);
  state.bias = array(1);
  state.running_mean = array(2);
  state.running_variance = array(3);
  state.mean = array(4);
  state.inverse_deviation = array(5);
  state.multiplier = array(6);
  state.shift = array(7);
  state.a = array(8);
  state.b = array(9);
  state.c = array(10);
  state.scale_gradient = array(11);
  state.bias_gradient = array(12);
  return state;
}

}  // namespace nearmetal::cuda
