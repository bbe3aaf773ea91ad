// Shapes and operands of kernels of ours, of the problem in whose place they are timed.
#pragma once

#include "models/cuda/kernels/batch_norm.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/tuning/own_kernels.h"

namespace nearmetal::cuda {

inline Extent output_extent(const ConvolutionShape& shape) {
  return {shape.output_elements() / shape.output_channels, static_cast<int>(shape.output_channels)};
}

/// The rows of a convolution of stride 1 are those of its output.
inline Extent input_extent(const ConvolutionShape& shape) {
  return {output_extent(shape).rows, static_cast<int>(shape.input_channels)};
}

inline PointwiseShape pointwise_shape(const ConvolutionShape& shape) {
  return {output_extent(shape).rows, static_cast<int>(shape.output_channels),
          static_cast<int>(shape.input_channels)};
}

inline PointwiseBackwardOperands pointwise_operands(const ConvolutionProblem& problem,
                                                    const TuningBuffers& buffers) {
  const ConvolutionOperands all = buffers.operands(problem.with(ConvolutionOp::backward_weights));
  PointwiseBackwardOperands operands;
  operands.dz = all.y;
  operands.y = buffers.second_y();
  operands.state = buffers.norm();
  operands.x = all.x;
  operands.weights = buffers.operands(problem.with(ConvolutionOp::backward_data)).weights;
  operands.dx = buffers.result();
  operands.weight_gradient = buffers.second_result();
  operands.partial_sums = static_cast<float*>(buffers.workspace());
  return operands;
}

}  // namespace nearmetal::cuda
