#include "models/cuda/own_kernels.h"

#include <algorithm>
#include <limits>

#include "models/cuda/convolution_check.h"
#include "models/cuda/pointwise_backward.h"

namespace nearmetal {
namespace {

Extent output_extent(const ConvolutionShape& shape) {
  return {shape.output_elements() / shape.output_channels, static_cast<int>(shape.output_channels)};
}

std::string extent_key(const char* name, const ConvolutionProblem& problem) {
  const Extent extent = output_extent(problem.shape);
  return std::string(name) + " " + to_string(problem.precision) + " " +
         std::to_string(extent.rows) + "x" + std::to_string(extent.channels);
}

OwnKernel statistics_sweep(const ConvolutionProblem& problem) {
  return {statistics_sweep_key(problem),
          [problem](const TuningBuffers& buffers, cudaStream_t stream) {
            launch_batch_statistics(problem.precision, buffers.second_y(),
                                    output_extent(problem.shape), buffers.norm(), buffers.scratch(),
                                    stream);
          },
          nullptr};
}

OwnKernel apply_sweep(const ConvolutionProblem& problem) {
  return {apply_sweep_key(problem),
          [problem](const TuningBuffers& buffers, cudaStream_t stream) {
            NormBackwardOperands operands;
            operands.dy = buffers.operands(problem).y;
            operands.x = buffers.second_y();
            operands.state = buffers.norm();
            operands.dx = buffers.result();
            launch_norm_backward_apply(problem.precision, operands, output_extent(problem.shape),
                                       buffers.scratch().multiprocessors, stream);
          },
          nullptr};
}

PointwiseShape pointwise_shape(const ConvolutionShape& shape) {
  return {output_extent(shape).rows, static_cast<int>(shape.output_channels),
          static_cast<int>(shape.input_channels)};
}

PointwiseBackwardOperands pointwise_operands(ConvolutionProblem problem,
                                             const TuningBuffers& buffers) {
  problem.op = ConvolutionOp::backward_weights;
  const ConvolutionOperands all = buffers.operands(problem);
  problem.op = ConvolutionOp::backward_data;
  PointwiseBackwardOperands operands;
  operands.dz = all.y;
  operands.y = buffers.second_y();
  operands.state = buffers.norm();
  operands.x = all.x;
  operands.weights = buffers.operands(problem).weights;
  operands.dx = buffers.result();
  operands.weight_gradient = buffers.second_result();
  operands.partial_sums = static_cast<float*>(buffers.workspace());
  return operands;
}

// With a = 1 and b = c = 0 the gradient at the output is dz itself, and the results are those of
// the two convolutions.
double pointwise_error(const ConvolutionProblem& problem, int multiprocessors,
                       const TuningBuffers& buffers, cudaStream_t stream) {
  PointwiseBackwardOperands operands = pointwise_operands(problem, buffers);
  const ConvolutionShape& shape = problem.shape;
  std::vector<float> coefficients(2 * shape.output_channels);
  std::fill_n(coefficients.begin(), shape.output_channels, 1.0f);
  const DeviceMemory memory = allocate_device(coefficients.size() * sizeof(float));
  NM_CALL(cudaMemcpyAsync(memory.get(), coefficients.data(), coefficients.size() * sizeof(float),
                          cudaMemcpyHostToDevice, stream));
  operands.state.a = static_cast<float*>(memory.get());
  operands.state.b = operands.state.c = operands.state.a + shape.output_channels;
  const int64_t size = element_bytes(problem.precision);
  NM_CALL(cudaMemsetAsync(operands.dx, 0xff, shape.input_elements() * size, stream));
  NM_CALL(cudaMemsetAsync(operands.weight_gradient, 0xff, shape.weight_elements() * size, stream));
  launch_pointwise_backward(problem.precision, operands, pointwise_shape(shape), multiprocessors,
                            stream);
  double error = 0;
  for (const ConvolutionOp op : {ConvolutionOp::backward_data, ConvolutionOp::backward_weights}) {
    ConvolutionProblem part = problem;
    part.op = op;
    ConvolutionOperands checked = buffers.operands(part);
    if (op == ConvolutionOp::backward_weights) checked.weights = operands.weight_gradient;
    const CheckResult result = check_convolution(part, checked, samples_to_check(part), stream);
    if (!result.passes(part)) return std::numeric_limits<double>::infinity();
    error = std::max(error, result.relative_error);
  }
  return error;
}

OwnKernel pointwise_backward(const ConvolutionProblem& problem, int multiprocessors) {
  return {pointwise_backward_key(problem),
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            launch_pointwise_backward(problem.precision, pointwise_operands(problem, buffers),
                                      pointwise_shape(problem.shape), multiprocessors, stream);
          },
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            return pointwise_error(problem, multiprocessors, buffers, stream);
          }};
}

}  // namespace

std::vector<OwnKernel> own_kernels(const ConvolutionProblem& problem, int compute_capability_major,
                                   int multiprocessors) {
  const ConvolutionShape& shape = problem.shape;
  switch (problem.op) {
    case ConvolutionOp::forward:
      return {statistics_sweep(problem)};
    case ConvolutionOp::backward_data:
      if (shape.kernel == 1 && shape.stride == 1 &&
          pointwise_backward_fits(problem.precision, pointwise_shape(shape),
                                  compute_capability_major)) {
        return {apply_sweep(problem), pointwise_backward(problem, multiprocessors)};
      }
      return {};
    default:
      return {};
  }
}

std::string statistics_sweep_key(const ConvolutionProblem& problem) {
  return extent_key("batch_statistics sweep", problem);
}

std::string apply_sweep_key(const ConvolutionProblem& problem) {
  return extent_key("backward_apply sweep", problem);
}

std::string pointwise_backward_key(const ConvolutionProblem& problem) {
  return "fused " + problem.key();
}

}  // namespace nearmetal
