#include "models/cuda/tuning/own_kernels.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/stem.h"
#include "models/cuda/tuning/convolution_check.h"
#include "models/cuda/tuning/own_moments.h"
#include "models/cuda/tuning/own_operands.h"

namespace nearmetal::cuda {
namespace {

std::string extent_key(const char* name, const ConvolutionProblem& problem) {
  const Extent extent = output_extent(problem.shape);
  return std::string(name) + " " + to_string(problem.precision) + " " +
         std::to_string(extent.rows) + "x" + std::to_string(extent.channels);
}

OwnKernel statistics_sweep(const ConvolutionProblem& problem) {
  return {forward_sweep_key(problem),
          [problem](const TuningBuffers& buffers, cudaStream_t stream) {
            launch_batch_statistics(problem.precision, buffers.second_y(),
                                    output_extent(problem.shape), buffers.norm(), buffers.scratch(),
                                    stream);
          },
          nullptr};
}

OwnKernel activation_sweep(const ConvolutionProblem& problem) {
  return {forward_sweep_key(problem),
          [problem](const TuningBuffers& buffers, cudaStream_t stream) {
            Activation activation{buffers.norm().bias, problem.op != ConvolutionOp::forward_bias};
            activation.residual = buffers.operands(problem).residual;
            launch_activation(problem.precision, buffers.second_y(), activation, buffers.result(),
                              output_extent(problem.shape), buffers.scratch().multiprocessors,
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

bool fits_pointwise_backward(const ConvolutionProblem& problem, int compute_capability_major) {
  const ConvolutionShape& shape = problem.shape;
  return shape.kernel == 1 && shape.stride == 1 &&
         pointwise_backward_fits(problem.precision, pointwise_shape(shape),
                                 compute_capability_major);
}

// Three coefficients of each channel.
DeviceMemory constant_coefficients(const float (&values)[3], int64_t channels,
                                   BatchNormState& state, cudaStream_t stream) {
  std::vector<float> coefficients;
  for (const float value : values) coefficients.insert(coefficients.end(), channels, value);
  const auto bytes = static_cast<int64_t>(coefficients.size() * sizeof(float));
  DeviceMemory memory = allocate_device(bytes);
  NM_CALL(
      cudaMemcpyAsync(memory.get(), coefficients.data(), bytes, cudaMemcpyHostToDevice, stream));
  state.a = static_cast<float*>(memory.get());
  state.b = state.a + channels;
  state.c = state.b + channels;
  return memory;
}

double checked_error(const ConvolutionProblem& problem, const ConvolutionOperands& operands,
                     cudaStream_t stream) {
  const CheckResult result =
      check_convolution(problem, operands, samples_to_check(problem), stream);
  return result.passes(problem) ? result.relative_error : std::numeric_limits<double>::infinity();
}

// With a = 1 and b = c = 0 the gradient at the output is dz itself, and the results are those of
// the two convolutions.
double pointwise_error(const ConvolutionProblem& problem, int multiprocessors,
                       const TuningBuffers& buffers, cudaStream_t stream) {
  PointwiseBackwardOperands operands = pointwise_operands(problem, buffers);
  const ConvolutionShape& shape = problem.shape;
  const DeviceMemory coefficients =
      constant_coefficients({1, 0, 0}, shape.output_channels, operands.state, stream);
  const int64_t size = element_bytes(problem.precision);
  NM_CALL(cudaMemsetAsync(operands.dx, 0xff, shape.input_elements() * size, stream));
  NM_CALL(cudaMemsetAsync(operands.weight_gradient, 0xff, shape.weight_elements() * size, stream));
  launch_pointwise_backward(problem.precision, operands, pointwise_shape(shape), multiprocessors,
                            stream);
  double error = 0;
  for (const ConvolutionOp op : {ConvolutionOp::backward_data, ConvolutionOp::backward_weights}) {
    const ConvolutionProblem part = problem.with(op);
    ConvolutionOperands checked = buffers.operands(part);
    if (op == ConvolutionOp::backward_weights) checked.weights = operands.weight_gradient;
    error = std::max(error, checked_error(part, checked, stream));
  }
  return error;
}

OwnKernel pointwise_backward(const ConvolutionProblem& problem, int multiprocessors) {
  return {fused_backward_key(problem),
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            launch_pointwise_backward(problem.precision, pointwise_operands(problem, buffers),
                                      pointwise_shape(problem.shape), multiprocessors, stream);
          },
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            return pointwise_error(problem, multiprocessors, buffers, stream);
          }};
}

// Second moments are candidates where there is a backward pass, which they are for.
std::vector<OwnKernel> backward_kernels(const ConvolutionProblem& problem,
                                        int compute_capability_major, int multiprocessors) {
  const bool fused = fits_pointwise_backward(problem, compute_capability_major);
  const bool moments = takes_moments(problem, compute_capability_major);
  std::vector<OwnKernel> kernels;
  if (fused || moments) kernels.push_back(apply_sweep(problem));
  if (fused) kernels.push_back(pointwise_backward(problem, multiprocessors));
  if (fused && joins_gradients(problem)) {
    kernels.push_back(joined_backward(problem, multiprocessors));
    kernels.push_back(joined_sums(problem));
  }
  if (!moments) return kernels;
  kernels.front().optional = !fused;
  kernels.push_back(residual_norm_sweeps(problem));
  kernels.push_back(by_moments(problem, fused ? MomentsProducts::own : MomentsProducts::cudnn));
  return kernels;
}

bool is_stem(const ConvolutionShape& shape) {
  return shape.kernel == 7 && shape.stride == 2 && shape.padding_before == 3 &&
         shape.padding_after == 3 && shape.input_channels == stem_stored_channels &&
         shape.output_channels == stem_channels && shape.input_width % 2 == 0;
}

StemShape stem_shape(const ConvolutionShape& shape) {
  return {shape.batch, static_cast<int>(shape.input_height), static_cast<int>(shape.input_width),
          static_cast<int>(shape.output_height), static_cast<int>(shape.output_width)};
}

PoolShape pool_shape(const ConvolutionShape& shape) {
  const auto pooled = [](int64_t size) {
    const auto& [kernel, stride, padding] = stem_pool_window;
    return static_cast<int>((size + 2 * padding - kernel) / stride + 1);
  };
  return {shape.batch,
          static_cast<int>(shape.output_channels),
          static_cast<int>(shape.output_height),
          static_cast<int>(shape.output_width),
          pooled(shape.output_height),
          pooled(shape.output_width)};
}

OwnKernel stem_forward(const ConvolutionProblem& problem) {
  const auto launch = [problem](const TuningBuffers& buffers, cudaStream_t stream) {
    const ConvolutionOperands all =
        buffers.operands(problem.with(ConvolutionOp::forward_statistics));
    const StemForwardOperands operands{all.x, all.weights, all.y, static_cast<float*>(all.sum),
                                       static_cast<float*>(all.square_sum)};
    launch_stem_forward(problem.precision, operands, stem_shape(problem.shape), buffers.scratch(),
                        stream);
  };
  return {
      stem_forward_key(problem), launch, [=](const TuningBuffers& buffers, cudaStream_t stream) {
        NM_CALL(cudaMemsetAsync(buffers.result(), 0xff,
                                problem.shape.output_elements() * element_bytes(problem.precision),
                                stream));
        launch(buffers, stream);
        return checked_error(problem, buffers.operands(problem), stream);
      }};
}

StemBackwardOperands stem_backward_operands(const ConvolutionProblem& problem,
                                            const TuningBuffers& buffers) {
  const ConvolutionOperands all = buffers.operands(problem);
  const int64_t pooled_bytes =
      pool_shape(problem.shape).output().elements() * element_bytes(problem.precision);
  StemBackwardOperands operands;
  operands.pool.dz = buffers.second_y();
  operands.pool.winner = static_cast<const uint8_t*>(buffers.second_y()) + pooled_bytes;
  operands.pool.x = all.y;
  operands.pool.state = buffers.norm();
  operands.pool.dx = buffers.result();
  operands.images = all.x;
  operands.weight_gradient = buffers.second_result();
  operands.partial_sums = static_cast<float*>(buffers.workspace());
  return operands;
}

// With b = 1 and a = c = 0 the gradient at the convolution's output is x itself.
double stem_backward_error(const ConvolutionProblem& problem, int multiprocessors,
                           const TuningBuffers& buffers, cudaStream_t stream) {
  StemBackwardOperands operands = stem_backward_operands(problem, buffers);
  const DeviceMemory coefficients =
      constant_coefficients({0, 1, 0}, stem_channels, operands.pool.state, stream);
  NM_CALL(cudaMemsetAsync(operands.weight_gradient, 0xff,
                          problem.shape.weight_elements() * element_bytes(problem.precision),
                          stream));
  launch_stem_backward(problem.precision, operands, stem_shape(problem.shape),
                       pool_shape(problem.shape), multiprocessors, stream);
  ConvolutionOperands checked = buffers.operands(problem);
  checked.weights = operands.weight_gradient;
  return checked_error(problem, checked, stream);
}

OwnKernel stem_backward(const ConvolutionProblem& problem, int multiprocessors) {
  return {fused_backward_key(problem),
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            launch_stem_backward(problem.precision, stem_backward_operands(problem, buffers),
                                 stem_shape(problem.shape), pool_shape(problem.shape),
                                 multiprocessors, stream);
          },
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            return stem_backward_error(problem, multiprocessors, buffers, stream);
          }};
}

OwnKernel pool_sweep(const ConvolutionProblem& problem, int multiprocessors) {
  return {pool_sweep_key(problem),
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            launch_pool_backward_apply(problem.precision, pool_shape(problem.shape),
                                       stem_backward_operands(problem, buffers).pool,
                                       multiprocessors, stream);
          },
          nullptr};
}

}  // namespace

std::vector<OwnKernel> own_kernels(const ConvolutionProblem& problem, int compute_capability_major,
                                   int multiprocessors) {
  const ConvolutionShape& shape = problem.shape;
  const bool hopper_16_bit = compute_capability_major == 9 && element_bytes(problem.precision) == 2;
  switch (problem.op) {
    case ConvolutionOp::forward:
      return {};
    case ConvolutionOp::forward_statistics:
      if (hopper_16_bit && is_stem(shape)) {
        return {statistics_sweep(problem), stem_forward(problem.with(ConvolutionOp::forward))};
      }
      return {statistics_sweep(problem)};
    case ConvolutionOp::forward_bias:
    case ConvolutionOp::forward_activation:
    case ConvolutionOp::forward_residual:
      return {activation_sweep(problem)};
    case ConvolutionOp::backward_weights:
      if (!hopper_16_bit || !is_stem(shape)) return {};
      return {pool_sweep(problem, multiprocessors), stem_backward(problem, multiprocessors)};
    case ConvolutionOp::backward_data:
      return backward_kernels(problem, compute_capability_major, multiprocessors);
  }
  throw std::logic_error("unnamed ConvolutionOp");
}

std::string forward_sweep_key(const ConvolutionProblem& problem) {
  const char* name = problem.op == ConvolutionOp::forward_bias         ? "bias sweep"
                     : problem.op == ConvolutionOp::forward_activation ? "activation sweep"
                     : problem.op == ConvolutionOp::forward_residual   ? "residual sweep"
                                                                       : "batch_statistics sweep";
  return extent_key(name, problem);
}

std::string apply_sweep_key(const ConvolutionProblem& problem) {
  return extent_key("backward_apply sweep", problem);
}

std::string residual_norm_key(const ConvolutionProblem& problem) {
  return extent_key("residual_norm sweeps", problem);
}

std::string moments_key(const ConvolutionProblem& problem) {
  return "moments " + problem.with(ConvolutionOp::forward).key();
}

std::string joined_backward_key(const ConvolutionProblem& problem) {
  return "joined " + problem.key();
}

std::string joined_sums_key(const ConvolutionProblem& problem) {
  return "sums before " + problem.key();
}

std::string fused_backward_key(const ConvolutionProblem& problem) {
  return "fused " + problem.key();
}

std::string stem_forward_key(const ConvolutionProblem& problem) { return "own " + problem.key(); }

std::string pool_sweep_key(const ConvolutionProblem& problem) {
  return extent_key("pool_backward sweep", problem);
}

}  // namespace nearmetal::cuda
