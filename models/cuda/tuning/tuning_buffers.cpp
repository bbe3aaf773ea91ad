#include "models/cuda/tuning/tuning_buffers.h"

#include <algorithm>

#include "models/cuda/compiler/emission.h"
#include "models/cuda/kernels/images.h"

namespace nearmetal::cuda {

DeviceMemory random_values(Precision precision, int64_t elements, uint64_t seed,
                           cudaStream_t stream) {
  const int line = 1024;
  const ImageLayout layout{(elements + line - 1) / line, 1, 1, line, 1, 1};
  DeviceMemory memory = allocate_device(layout.stored_elements() * element_bytes(precision));
  launch_synthetic_images(precision, layout, seed, memory.get(), stream);
  return memory;
}

TuningBuffers::TuningBuffers(const std::vector<ConvolutionProblem>& problems, cudaStream_t stream) {
  int64_t x_size = 1, weight_size = 1, y_size = 1, channels = 1;
  for (const ConvolutionProblem& problem : problems) {
    const ConvolutionShape& shape = problem.shape;
    x_size = std::max(x_size, shape.input_elements());
    weight_size = std::max(weight_size, shape.weight_elements());
    y_size = std::max(y_size, shape.output_elements());
    channels = std::max(channels, shape.output_channels);
  }
  const Precision precision = problems.front().precision;
  x_ = random_values(precision, x_size, 1, stream);
  weights_ = random_values(precision, weight_size, 2, stream);
  y_ = random_values(precision, y_size, 3, stream);
  second_y_ = random_values(precision, y_size, 5, stream);
  result_ = allocate_device(std::max({x_size, weight_size, y_size}) * element_bytes(precision));
  sums_ = allocate_device(2 * channels * static_cast<int64_t>(sizeof(float)));
  workspace_ = allocate_device(workspace_limit(precision));
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

}  // namespace nearmetal::cuda
