// The emitters of our kernels for images.
#include "models/cuda/compiler/emission.h"
#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/norm_pool.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/second_moments.h"
#include "models/cuda/kernels/stem.h"
#include "models/cuda/kernels/update.h"

namespace nearmetal::cuda::emitters {
namespace {

using enum Role;

void stem_forward(const Bound& b, cudaStream_t stream) {
  float* sum = b.as<float>(sums);
  launch_stem_forward(b.precision(),
                      {b[x], b.operand(b.parameter()), b[y], sum, sum + stem_channels},
                      b.shapes.stem(b.op.node), b.reduction(), stream);
}

void normalise(const Bound& b, cudaStream_t stream) {
  const NormPattern& norm = b.op.norm;
  const NormInput other = b.norm(norm.residual_norm, residual_sums);
  NormaliseOperands operands;
  operands.x = b[x];
  operands.norm = b.norm(norm.norm, sums);
  operands.residual = b[residual];
  if (norm.residual_norm >= 0) operands.residual_norm = &other;
  operands.relu = b.op.relu;
  operands.mask = b.as<uint8_t>(mask);
  if (b.op.mean >= 0) operands.mean_of_pixels = b.shapes.image(norm.output).pixels();
  operands.y = b[y];
  launch_normalise(b.precision(), operands, b.shapes.extent(norm.norm), b.multiprocessors(),
                   stream);
}

// The gradient behind a pattern of batch norms, as its two sweeps take it.
NormBackwardOperands norm_gradient_operands(const Bound& b) {
  NormBackwardOperands operands;
  operands.count = b.shapes.extent(b.op.norm.conv).rows;
  operands.incoming = b.op.incoming;
  operands.relu = b.op.relu;
  operands.dy = b[dy];
  operands.dy_second = b[dy_second];
  operands.image = b.shapes.image(b.op.norm.output);
  operands.mask = b.as<const uint8_t>(mask);
  operands.x = b[x];
  operands.state = b.norm(b.op.norm.norm);
  operands.dx = b[dx];
  operands.dz = b[dz];
  operands.residual_x = b[residual_x];
  operands.residual_state = b.norm(b.op.norm.residual_norm);
  operands.residual_dx = b[residual_dx];
  return operands;
}

void norm_gradient_sums(const Bound& b, cudaStream_t stream) {
  // Behind pooling the sums are those of the winners.
  const Extent extent = b.op.norm.pool >= 0 ? b.shapes.pool(b.op.norm.pool).output()
                                            : b.shapes.extent(b.op.norm.conv);
  launch_norm_backward_sums(b.precision(), norm_gradient_operands(b), extent, b.reduction(),
                            stream);
}

void pointwise_backward(const Bound& b, cudaStream_t stream) {
  PointwiseBackwardOperands operands;
  operands.dz = b[dz];
  operands.y = b[y];
  operands.state = b.norm(b.op.norm.norm);
  operands.relu = b.op.relu;
  operands.x = b[x];
  operands.weights = b.has(weights) ? b[weights] : b.operand(b.parameter());
  operands.dx = b[dx];
  operands.dx_second = b[dx_second];
  if (b.op.incoming == Incoming::two_second_at_even_pixels) {
    operands.second_at_even_pixels_of = b.shapes.image(b.input());
  }
  operands.dx_sums = b.norm(b.op.joined_norm).bias_gradient;
  operands.weight_gradient = b.matrix_gradient(b.parameter());
  operands.partial_sums = b.as<float>(scratch);
  launch_pointwise_backward(b.precision(), operands, b.shapes.pointwise(b.op.node),
                            b.multiprocessors(), stream);
}

InputMoments moments_of(const Bound& b) { return {b.as<float>(mean), b.as<float>(central)}; }

void pointwise_forward(const Bound& b, cudaStream_t stream) {
  const NormInput other = b.norm(b.op.norm.residual_norm, residual_sums);
  const MomentsShape shape = b.shapes.moments(b.op.node);
  PointwiseForwardOperands operands;
  operands.x = b[x];
  operands.weights = b.operand(b.parameter());
  operands.state = b.norm(b.op.norm.norm);
  operands.residual = b[residual];
  if (b.op.norm.residual_norm >= 0) operands.residual_norm = &other;
  operands.y = b[y];
  operands.mask = b.as<uint8_t>(mask);
  launch_pointwise_forward(b.precision(), operands, shape.rows, shape.inputs, b.multiprocessors(),
                           stream);
}

void moments_sums(const Bound& b, cudaStream_t stream) {
  const MomentsShape shape = b.shapes.moments(b.op.node);
  launch_moments_sums(b.precision(),
                      {b[x], b.norm(b.op.norm.norm), b.as<const float>(matrix),
                       b.as<const float>(vector), b.as<const unsigned>(largest), b[dz]},
                      shape.rows, shape.inputs, b.reduction(), stream);
}

constexpr Emitter image_rows[] = {
    {FusedKind::convolution, "convolution", ""},
    {FusedKind::batch_statistics, "batch_statistics", "own statistics sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_batch_statistics(b.precision(), b[x], b.extent(), b.norm(b.op.norm.norm),
                               b.reduction(), stream);
     }},
    {FusedKind::stem_forward, "stem_forward", "own", stem_forward},
    {FusedKind::normalise, "normalise", "own sweep", normalise},
    {FusedKind::normalise_pool, "normalise_pool", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_norm_pool(
           b.precision(), b.shapes.pool(b.op.node),
           {b[x], b.norm(b.op.norm.norm, sums), b[y], b.as<uint8_t>(winner), b[winner_x]},
           b.multiprocessors(), stream);
     }},
    {FusedKind::average_pool, "average_pool", "own",
     [](const Bound& b, cudaStream_t stream) {
       launch_average_pool(b.precision(), b[x], b[y], b.shapes.batch,
                           b.shapes.image(b.input()).pixels(), b.shapes.extent(b.input()).channels,
                           stream);
     }},
    {FusedKind::average_pool_gradient, "average_pool_gradient", "own",
     [](const Bound& b, cudaStream_t stream) {
       launch_average_pool_backward(b.precision(), b[dy], b[dx], b.shapes.batch,
                                    b.shapes.image(b.input()).pixels(),
                                    b.shapes.extent(b.input()).channels, stream);
     }},
    {FusedKind::activation, "activation", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_activation(b.precision(), b[x], {b.value(b.op.bias), b.op.relu, b[residual]},
                         b.either(y, x), b.extent(), b.multiprocessors(), stream);
     }},
    {FusedKind::activation_gradient, "activation_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_activation_backward(b.precision(), {b[dy], b[y], b[dx], b.vector_gradient(b.op.bias)},
                                  b.extent(), b.reduction(), stream);
     }},
    {FusedKind::activation_pool, "activation_pool", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_activation_pool(b.precision(), b.shapes.pool(b.op.node), b[x],
                              {b.value(b.op.bias), b.op.relu}, b[y], b.as<uint8_t>(winner), stream);
     }},
    {FusedKind::activation_pool_gradient, "activation_pool_gradient", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_activation_pool_backward(
           b.precision(), b.shapes.pool(b.op.node),
           {b[dy], b.as<const uint8_t>(winner), b[dx], b.vector_gradient(b.op.bias)}, b.reduction(),
           stream);
     }},
    {FusedKind::add, "add", "own sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_add(b.precision(), b[x], b[residual], b[y],
                  b.operands.front()->bytes / b.shapes.element_size(), stream);
     }},
    {FusedKind::norm_gradient_sums, "norm_gradient_sums", "own sums sweep", norm_gradient_sums},
    {FusedKind::norm_gradient_apply, "norm_gradient_apply", "own apply sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_norm_backward_apply(b.precision(), norm_gradient_operands(b),
                                  b.shapes.extent(b.op.norm.conv), b.multiprocessors(), stream);
     }},
    {FusedKind::pool_gradient_apply, "pool_gradient_apply", "own apply sweep",
     [](const Bound& b, cudaStream_t stream) {
       launch_pool_backward_apply(
           b.precision(), b.shapes.pool(b.op.node),
           {b[dz], b.as<const uint8_t>(winner), b[x], b.norm(b.op.norm.norm), b[dx]},
           b.multiprocessors(), stream);
     }},
    {FusedKind::pointwise_backward, "pointwise_backward", "own fused", pointwise_backward},
    {FusedKind::pointwise_products, "pointwise_products", "own", pointwise_backward},
    {FusedKind::stem_backward, "stem_backward", "own fused",
     [](const Bound& b, cudaStream_t stream) {
       launch_stem_backward(
           b.precision(),
           {{b[dz], b.as<const uint8_t>(winner), b[y], b.norm(b.op.norm.norm), nullptr},
            b[x],
            b.matrix_gradient(b.parameter()),
            b.as<float>(scratch)},
           b.shapes.stem(b.op.node), b.shapes.pool(b.op.norm.pool), b.multiprocessors(), stream);
     }},
    {FusedKind::stem_mask, "stem_mask", "own mask",
     [](const Bound& b, cudaStream_t stream) {
       launch_mask_gradient(b.precision(), b.matrix_gradient(b.parameter()), b.resources.stem_mask,
                            b.layout.slices[b.parameter()].elements, stream);
     }},
    {FusedKind::second_moments, "second_moments", "own sweep with second moments",
     [](const Bound& b, cudaStream_t stream) {
       launch_second_moments(
           b.precision(),
           {b[y], b.norm(b.op.norm.norm, sums), b[x], moments_of(b), b.as<float>(scratch)},
           b.shapes.moments(b.op.node), b.multiprocessors(), stream);
     }},
    {FusedKind::moments_statistics, "moments_statistics", "own statistics by moments",
     [](const Bound& b, cudaStream_t stream) {
       launch_moments_statistics(b.precision(),
                                 {moments_of(b), b.operand(b.parameter()), b.norm(b.op.norm.norm),
                                  b.as<float>(product), b[weights]},
                                 b.shapes.moments(b.op.node), stream);
     }},
    {FusedKind::pointwise_forward, "pointwise_forward", "own", pointwise_forward},
    {FusedKind::moments_gradient, "moments_gradient", "own gradient by moments",
     [](const Bound& b, cudaStream_t stream) {
       launch_moments_gradient(
           b.precision(),
           {b.as<const float>(mean), b.operand(b.parameter()), b.norm(b.op.norm.norm),
            b.as<const float>(product), b.matrix_gradient(b.parameter()), b.as<float>(matrix),
            b.as<float>(vector), b.as<unsigned>(largest)},
           b.shapes.moments(b.op.node), stream);
     }},
    {FusedKind::moments_sums, "moments_sums", "own sums sweep with term by moments", moments_sums},
};

}  // namespace

std::span<const Emitter> of_images() { return image_rows; }

}  // namespace nearmetal::cuda::emitters
