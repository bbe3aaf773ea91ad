#include "models/cuda/tuning/own_moments.h"

#include <stdexcept>
#include <utility>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/kernels/pointwise/second_moments.h"
#include "models/cuda/tuning/own_operands.h"

namespace nearmetal::cuda {
namespace {

MomentsShape moments_shape(const ConvolutionShape& shape) {
  return {output_extent(shape).rows, static_cast<int>(shape.input_channels),
          static_cast<int>(shape.output_channels)};
}

// Everything that the kernels keep in the workspace beside a ReLU's mask takes less.
constexpr int64_t beside_mask_bytes = int64_t{64} << 20;

// A bit for each value of a tensor.
bool mask_fits(const Extent& extent, Precision precision) {
  return extent.elements() / 8 + beside_mask_bytes <= workspace_limit(precision);
}

// Parts of the workspace, one behind the other.
class Parts {
 public:
  Parts(void* first, int64_t bytes)
      : next_(static_cast<char*>(first)), end_(static_cast<char*>(first) + bytes) {}
  template <class T = float>
  T* take(int64_t count) {
    constexpr int64_t alignment = 1024;
    const auto units = (count * static_cast<int64_t>(sizeof(T)) + alignment - 1) / alignment;
    if (units * alignment > end_ - next_) throw std::logic_error("the workspace is too small");
    return reinterpret_cast<T*>(std::exchange(next_, next_ + units * alignment));
  }

 private:
  char *next_, *end_;
};

// The block end's gradient has two parts, and its ReLU a mask.
NormBackwardOperands residual_norm_operands(const ConvolutionProblem& problem,
                                            const TuningBuffers& buffers, const uint8_t* mask) {
  NormBackwardOperands operands;
  operands.count = output_extent(problem.shape).rows;
  operands.incoming = Incoming::two;
  operands.dy = buffers.operands(problem.with(ConvolutionOp::backward_data)).y;
  operands.dy_second = buffers.second_y();
  operands.mask = mask;
  operands.x = buffers.second_y();
  operands.state = buffers.norm();
  operands.dz = buffers.result();
  return operands;
}

// The backward sums of the batch norm and ReLU in front of the convolution.
void launch_sums_before(const ConvolutionProblem& problem, const TuningBuffers& buffers,
                        cudaStream_t stream) {
  const MomentsShape shape = moments_shape(problem.shape);
  NormBackwardOperands operands;
  operands.count = shape.rows;
  operands.dy = buffers.result();
  operands.x = buffers.operands(problem.with(ConvolutionOp::backward_weights)).x;
  operands.state = buffers.norm_before();
  launch_norm_backward_sums(problem.precision, operands, {shape.rows, shape.inputs},
                            buffers.scratch(), stream);
}

// The batch norm before the convolution, whose output is the convolution's input.
void launch_input_sweep(const ConvolutionProblem& problem, const TuningBuffers& buffers,
                        cudaStream_t stream) {
  const Extent extent = input_extent(problem.shape);
  NormaliseOperands operands;
  operands.x = buffers.operands(problem.with(ConvolutionOp::forward)).x;
  operands.norm = {buffers.norm_before()};
  operands.relu = true;
  operands.y = buffers.result();
  launch_normalise(problem.precision, operands, extent, buffers.scratch().multiprocessors, stream);
}

// The workspace of second moments and their backward pass.
struct MomentsParts {
  uint8_t* mask;
  float* partial_sums;
  InputMoments moments;
  float* product;
  void* scaled_weights;
  float *products_partial_sums, *matrix, *vector;
  unsigned* largest;

  MomentsParts(const TuningBuffers& buffers, const ConvolutionProblem& problem) {
    const MomentsShape shape = moments_shape(problem.shape);
    const int multiprocessors = buffers.scratch().multiprocessors;
    const int64_t squares = int64_t{shape.inputs} * shape.inputs;
    const int64_t weights = int64_t{shape.outputs} * shape.inputs;
    const auto floats = [](int64_t bytes) { return bytes / static_cast<int64_t>(sizeof(float)); };
    Parts parts(buffers.workspace(), workspace_limit(problem.precision));
    mask = parts.take<uint8_t>(output_extent(problem.shape).elements() / 8);
    partial_sums = parts.take(floats(second_moments_scratch_bytes(shape, multiprocessors)));
    moments = {parts.take(shape.inputs), parts.take(squares)};
    product = parts.take(weights);
    scaled_weights = parts.take<uint16_t>(weights);
    products_partial_sums = parts.take(
        floats(pointwise_backward_scratch_bytes(pointwise_shape(problem.shape), multiprocessors)));
    matrix = parts.take(squares);
    vector = parts.take(shape.inputs);
    largest = parts.take<unsigned>(1);
  }
};

void launch_forward(const ConvolutionProblem& problem, const MomentsParts& parts,
                    const TuningBuffers& buffers, cudaStream_t stream) {
  const MomentsShape shape = moments_shape(problem.shape);
  const int multiprocessors = buffers.scratch().multiprocessors;
  const ConvolutionOperands all = buffers.operands(problem.with(ConvolutionOp::backward_weights));
  const void* weights = buffers.operands(problem.with(ConvolutionOp::forward)).weights;
  // Where results go lies z, so that the output takes the place of the weights' gradient.
  const NormInput norm_before{buffers.norm_before()};
  launch_second_moments(problem.precision,
                        {all.x, norm_before, buffers.result(), parts.moments, parts.partial_sums},
                        shape, multiprocessors, stream);
  launch_moments_statistics(
      problem.precision,
      {parts.moments, weights, buffers.norm(), parts.product, parts.scaled_weights}, shape, stream);
  PointwiseForwardOperands operands;
  operands.x = buffers.result();
  operands.weights = weights;
  operands.state = buffers.norm();
  operands.residual = all.y;
  operands.y = buffers.second_result();
  operands.mask = parts.mask;
  launch_pointwise_forward(problem.precision, operands, shape.rows, shape.inputs, multiprocessors,
                           stream);
}

void launch_backward(const ConvolutionProblem& problem, MomentsProducts products,
                     const MomentsParts& parts, const TuningBuffers& buffers, cudaStream_t stream) {
  const MomentsShape shape = moments_shape(problem.shape);
  const int multiprocessors = buffers.scratch().multiprocessors;
  NormBackwardOperands sums = residual_norm_operands(problem, buffers, parts.mask);
  sums.x = nullptr;
  launch_norm_backward_sums(problem.precision, sums, output_extent(problem.shape),
                            buffers.scratch(), stream);
  PointwiseBackwardOperands both = pointwise_operands(problem, buffers);
  both.y = nullptr;
  both.partial_sums = parts.products_partial_sums;
  if (products == MomentsProducts::own) {
    launch_pointwise_backward(problem.precision, both, pointwise_shape(problem.shape),
                              multiprocessors, stream);
  }
  MomentsGradientOperands operands;
  operands.mean = parts.moments.mean;
  operands.weights = both.weights;
  operands.state = buffers.norm();
  operands.product = parts.product;
  operands.weight_gradient = both.weight_gradient;
  operands.matrix = parts.matrix;
  operands.vector = parts.vector;
  operands.largest = parts.largest;
  launch_moments_gradient(problem.precision, operands, shape, stream);
  launch_moments_sums(
      problem.precision,
      {both.x, buffers.norm_before(), operands.matrix, operands.vector, operands.largest, both.dx},
      shape.rows, shape.inputs, buffers.scratch(), stream);
}

}  // namespace

bool takes_moments(const ConvolutionProblem& problem, int compute_capability_major) {
  const ConvolutionShape& shape = problem.shape;
  return shape.kernel == 1 && shape.stride == 1 &&
         moments_fit(problem.precision, moments_shape(shape), compute_capability_major) &&
         mask_fits(output_extent(shape), problem.precision);
}

bool joins_gradients(const ConvolutionProblem& problem) {
  return pointwise_backward_joins(pointwise_shape(problem.shape)) &&
         mask_fits(input_extent(problem.shape), problem.precision);
}

OwnKernel residual_norm_sweeps(const ConvolutionProblem& problem) {
  const auto launch = [problem](const TuningBuffers& buffers, cudaStream_t stream) {
    launch_input_sweep(problem, buffers, stream);
    const Extent extent = output_extent(problem.shape);
    auto* mask = static_cast<uint8_t*>(buffers.workspace());
    NormaliseOperands operands;
    operands.x = buffers.second_y();
    operands.norm = {buffers.norm()};
    operands.residual = buffers.operands(problem.with(ConvolutionOp::backward_data)).y;
    operands.relu = true;
    operands.mask = mask;
    operands.y = buffers.result();
    launch_normalise(problem.precision, operands, extent, buffers.scratch().multiprocessors,
                     stream);
    launch_norm_backward_sums(problem.precision, residual_norm_operands(problem, buffers, mask),
                              extent, buffers.scratch(), stream);
    launch_sums_before(problem, buffers, stream);
  };
  return {residual_norm_key(problem), launch, nullptr, true};
}

OwnKernel by_moments(const ConvolutionProblem& problem, MomentsProducts products) {
  return {moments_key(problem),
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            const MomentsParts parts(buffers, problem);
            launch_forward(problem, parts, buffers, stream);
            launch_backward(problem, products, parts, buffers, stream);
          },
          nullptr, true};
}

// The second gradient lies where the result goes.
OwnKernel joined_backward(const ConvolutionProblem& problem, int multiprocessors) {
  return {joined_backward_key(problem),
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            PointwiseBackwardOperands operands = pointwise_operands(problem, buffers);
            operands.dx_second = operands.dx;
            operands.dx_sums = buffers.norm().bias_gradient;
            launch_pointwise_backward(problem.precision, operands, pointwise_shape(problem.shape),
                                      multiprocessors, stream);
          },
          nullptr, true};
}

OwnKernel joined_sums(const ConvolutionProblem& problem) {
  return {joined_sums_key(problem),
          [=](const TuningBuffers& buffers, cudaStream_t stream) {
            const Extent extent = input_extent(problem.shape);
            NormBackwardOperands operands;
            operands.count = extent.rows;
            operands.incoming = Incoming::two;
            operands.dy = buffers.result();
            operands.dy_second = buffers.operands(problem.with(ConvolutionOp::backward_weights)).x;
            operands.mask = static_cast<const uint8_t*>(buffers.workspace());
            operands.state = buffers.norm();
            operands.dz = buffers.result();
            launch_norm_backward_sums(problem.precision, operands, extent, buffers.scratch(),
                                      stream);
          },
          nullptr, true};
}

}  // namespace nearmetal::cuda
