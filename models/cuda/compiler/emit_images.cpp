#include "models/cuda/compiler/emit_images.h"

#include <array>

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

int weights_of(const FusedOp& op, const Emission& e) { return e.graph.node(op.node).parameters[0]; }

// The gradient behind a pattern of batch norms, as its two sweeps take it.
std::function<NormBackwardOperands()> norm_operands(const FusedOp& op, const Emission& e) {
  const int64_t rows = e.shapes.extent(op.norm.conv).rows;
  return [=, at = Operands(op, e), relu = op.relu, incoming = op.incoming,
          image = e.shapes.image(op.norm.output), norm = NormPlace(op.norm.norm, e),
          residual_norm = NormPlace(op.norm.residual_norm, e)] {
    NormBackwardOperands operands;
    operands.count = rows;
    operands.incoming = incoming;
    operands.relu = relu;
    operands.dy = at[dy];
    operands.dy_second = at[dy_second];
    operands.image = image;
    operands.mask = at.as<const uint8_t>(mask);
    operands.x = at[x];
    operands.state = norm.state();
    operands.dx = at[dx];
    operands.dz = at[dz];
    operands.residual_x = at[residual_x];
    operands.residual_state = residual_norm.state();
    operands.residual_dx = at[residual_dx];
    return operands;
  };
}

InputMoments moments_of(const Operands& at) { return {at.as<float>(mean), at.as<float>(central)}; }

Launch emit_batch_statistics(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.extent(op.node),
          norm = NormPlace(op.norm.norm, e), &r = e.resources](cudaStream_t stream) {
    launch_batch_statistics(precision, at[x], extent, norm.state(), r.reduction, stream);
  };
}

Launch emit_stem_forward(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.stem(op.node),
          weight = ParameterPlace(weights_of(op, e), e), &r = e.resources](cudaStream_t stream) {
    float* sum = at.as<float>(sums);
    const StemForwardOperands operands{at[x], weight.operand(), at[y], sum, sum + stem_channels};
    launch_stem_forward(precision, operands, shape, r.reduction, stream);
  };
}

Launch emit_normalise(const FusedOp& op, const Emission& e) {
  const int pixels = op.mean < 0 ? 0 : e.shapes.image(op.norm.output).pixels();
  return
      [=, at = Operands(op, e), precision = e.options.precision, relu = op.relu,
       extent = e.shapes.extent(op.norm.norm), norm = NormPlace(op.norm.norm, e),
       residual_norm = NormPlace(op.norm.residual_norm, e), &r = e.resources](cudaStream_t stream) {
        NormaliseOperands operands;
        operands.x = at[x];
        operands.norm = norm.input(at[sums]);
        operands.residual = at[residual];
        const NormInput other = residual_norm.input(at[residual_sums]);
        if (residual_norm.exists()) operands.residual_norm = &other;
        operands.relu = relu;
        operands.mask = at.as<uint8_t>(mask);
        operands.mean_of_pixels = pixels;
        operands.y = at[y];
        launch_normalise(precision, operands, extent, r.reduction.multiprocessors, stream);
      };
}

Launch emit_normalise_pool(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.pool(op.node),
          norm = NormPlace(op.norm.norm, e), &r = e.resources](cudaStream_t stream) {
    const NormPoolOperands operands{at[x], norm.input(at[sums]), at[y], at.as<uint8_t>(winner),
                                    at[winner_x]};
    launch_norm_pool(precision, shape, operands, r.reduction.multiprocessors, stream);
  };
}

Launch emit_average_pool(const FusedOp& op, const Emission& e) {
  const int input = e.graph.node(op.node).inputs[0];
  return [at = Operands(op, e), precision = e.options.precision, images = e.shapes.batch,
          pixels = e.shapes.image(input).pixels(),
          channels = e.shapes.extent(input).channels](cudaStream_t stream) {
    launch_average_pool(precision, at[x], at[y], images, pixels, channels, stream);
  };
}

Launch emit_average_pool_gradient(const FusedOp& op, const Emission& e) {
  const int input = e.graph.node(op.node).inputs[0];
  return [at = Operands(op, e), precision = e.options.precision, images = e.shapes.batch,
          pixels = e.shapes.image(input).pixels(),
          channels = e.shapes.extent(input).channels](cudaStream_t stream) {
    launch_average_pool_backward(precision, at[dy], at[dx], images, pixels, channels, stream);
  };
}

Launch emit_activation(const FusedOp& op, const Emission& e) {
  return
      [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.extent(op.node),
       bias = ParameterPlace(op.bias, e), relu = op.relu, &r = e.resources](cudaStream_t stream) {
        void* result = at.tensor(y) == nullptr ? at[x] : at[y];
        launch_activation(precision, at[x], {bias.value(), relu, at[residual]}, result, extent,
                          r.reduction.multiprocessors, stream);
      };
}

Launch emit_activation_pool(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.pool(op.node),
          bias = ParameterPlace(op.bias, e), relu = op.relu](cudaStream_t stream) {
    launch_activation_pool(precision, shape, at[x], {bias.value(), relu}, at[y],
                           at.as<uint8_t>(winner), stream);
  };
}

Launch emit_activation_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, extent = e.shapes.extent(op.node),
          bias = ParameterPlace(op.bias, e), &r = e.resources](cudaStream_t stream) {
    launch_activation_backward(precision, {at[dy], at[y], at[dx], bias.vector_gradient()}, extent,
                               r.reduction, stream);
  };
}

Launch emit_activation_pool_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.pool(op.node),
          bias = ParameterPlace(op.bias, e), &r = e.resources](cudaStream_t stream) {
    const PoolGradientOperands operands{at[dy], at.as<const uint8_t>(winner), at[dx],
                                        bias.vector_gradient()};
    launch_activation_pool_backward(precision, shape, operands, r.reduction, stream);
  };
}

Launch emit_add(const FusedOp& op, const Emission& e) {
  const Operands at(op, e);
  return [at, precision = e.options.precision,
          elements = at.tensor(x)->bytes / e.shapes.element_size()](cudaStream_t stream) {
    launch_add(precision, at[x], at[residual], at[y], elements, stream);
  };
}

Launch emit_norm_gradient_sums(const FusedOp& op, const Emission& e) {
  // Behind pooling the sums are those of the winners.
  const bool pooled = op.norm.pool >= 0;
  const Extent extent =
      pooled ? e.shapes.pool(op.norm.pool).output() : e.shapes.extent(op.norm.conv);
  return [=, operands = norm_operands(op, e), precision = e.options.precision,
          &r = e.resources](cudaStream_t stream) {
    launch_norm_backward_sums(precision, operands(), extent, r.reduction, stream);
  };
}

Launch emit_norm_gradient_apply(const FusedOp& op, const Emission& e) {
  return [operands = norm_operands(op, e), precision = e.options.precision,
          extent = e.shapes.extent(op.norm.conv), &r = e.resources](cudaStream_t stream) {
    launch_norm_backward_apply(precision, operands(), extent, r.reduction.multiprocessors, stream);
  };
}

Launch emit_pool_gradient_apply(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.pool(op.node),
          norm = NormPlace(op.norm.norm, e), &r = e.resources](cudaStream_t stream) {
    const PoolBackwardOperands operands{at[dz], at.as<const uint8_t>(winner), at[x], norm.state(),
                                        at[dx]};
    launch_pool_backward_apply(precision, shape, operands, r.reduction.multiprocessors, stream);
  };
}

Launch emit_pointwise_backward(const FusedOp& op, const Emission& e) {
  return
      [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.pointwise(op.node),
       norm = NormPlace(op.norm.norm, e), relu = op.relu, joined = NormPlace(op.joined_norm, e),
       weight = ParameterPlace(weights_of(op, e), e), &r = e.resources](cudaStream_t stream) {
        PointwiseBackwardOperands operands;
        operands.dz = at[dz];
        operands.y = at[y];
        operands.state = norm.state();
        operands.relu = relu;
        operands.x = at[x];
        operands.weights = at.tensor(weights) == nullptr ? weight.operand() : at[weights];
        operands.dx = at[dx];
        operands.dx_second = at[dx_second];
        operands.dx_sums = joined.state().bias_gradient;
        operands.weight_gradient = weight.gradient();
        operands.partial_sums = at.as<float>(Role::scratch);
        launch_pointwise_backward(precision, operands, shape, r.reduction.multiprocessors, stream);
      };
}

Launch emit_stem_backward(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.stem(op.node),
          pool = e.shapes.pool(op.norm.pool), norm = NormPlace(op.norm.norm, e),
          weight = ParameterPlace(weights_of(op, e), e), &r = e.resources](cudaStream_t stream) {
    const StemBackwardOperands operands{
        {at[dz], at.as<const uint8_t>(winner), at[y], norm.state(), nullptr},
        at[x],
        weight.gradient(),
        at.as<float>(Role::scratch)};
    launch_stem_backward(precision, operands, shape, pool, r.reduction.multiprocessors, stream);
  };
}

Launch emit_stem_mask(const FusedOp& op, const Emission& e) {
  const int parameter = weights_of(op, e);
  return [precision = e.options.precision, weight = ParameterPlace(parameter, e),
          elements = e.layout.slices[parameter].elements, &r = e.resources](cudaStream_t stream) {
    launch_mask_gradient(precision, weight.gradient(), r.stem_mask, elements, stream);
  };
}

Launch emit_second_moments(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.moments(op.node),
          norm = NormPlace(op.norm.norm, e), &r = e.resources](cudaStream_t stream) {
    SecondMomentsOperands operands;
    operands.y = at[y];
    operands.norm = norm.input(at[sums]);
    operands.z = at[x];
    operands.moments = moments_of(at);
    operands.partial_sums = at.as<float>(Role::scratch);
    launch_second_moments(precision, operands, shape, r.reduction.multiprocessors, stream);
  };
}

Launch emit_moments_statistics(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.moments(op.node),
          norm = NormPlace(op.norm.norm, e),
          weight = ParameterPlace(weights_of(op, e), e)](cudaStream_t stream) {
    const MomentsNormOperands operands{moments_of(at), weight.operand(), norm.state(),
                                       at.as<float>(product), at[weights]};
    launch_moments_statistics(precision, operands, shape, stream);
  };
}

Launch emit_pointwise_forward(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.moments(op.node),
          norm = NormPlace(op.norm.norm, e), residual_norm = NormPlace(op.norm.residual_norm, e),
          weight = ParameterPlace(weights_of(op, e), e), &r = e.resources](cudaStream_t stream) {
    const NormInput other = residual_norm.input(at[residual_sums]);
    PointwiseForwardOperands operands;
    operands.x = at[x];
    operands.weights = weight.operand();
    operands.state = norm.state();
    operands.residual = at[residual];
    if (residual_norm.exists()) operands.residual_norm = &other;
    operands.y = at[y];
    operands.mask = at.as<uint8_t>(mask);
    launch_pointwise_forward(precision, operands, shape.rows, shape.inputs,
                             r.reduction.multiprocessors, stream);
  };
}

Launch emit_moments_gradient(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.moments(op.node),
          norm = NormPlace(op.norm.norm, e),
          weight = ParameterPlace(weights_of(op, e), e)](cudaStream_t stream) {
    MomentsGradientOperands operands;
    operands.mean = at.as<const float>(mean);
    operands.weights = weight.operand();
    operands.state = norm.state();
    operands.product = at.as<const float>(product);
    operands.weight_gradient = weight.gradient();
    operands.matrix = at.as<float>(matrix);
    operands.vector = at.as<float>(vector);
    operands.largest = at.as<unsigned>(largest);
    launch_moments_gradient(precision, operands, shape, stream);
  };
}

Launch emit_moments_sums(const FusedOp& op, const Emission& e) {
  return [at = Operands(op, e), precision = e.options.precision, shape = e.shapes.moments(op.node),
          norm = NormPlace(op.norm.norm, e), &r = e.resources](cudaStream_t stream) {
    const MomentsSumsOperands operands{at[x],
                                       norm.state(),
                                       at.as<const float>(matrix),
                                       at.as<const float>(vector),
                                       at.as<const unsigned>(largest),
                                       at[dz]};
    launch_moments_sums(precision, operands, shape.rows, shape.inputs, r.reduction, stream);
  };
}

constexpr std::array image_rows = {
    Emitter{FusedKind::batch_statistics, "batch_statistics", "own statistics sweep",
            emit_batch_statistics},
    Emitter{FusedKind::stem_forward, "stem_forward", "own", emit_stem_forward},
    Emitter{FusedKind::normalise, "normalise", "own sweep", emit_normalise},
    Emitter{FusedKind::normalise_pool, "normalise_pool", "own sweep", emit_normalise_pool},
    Emitter{FusedKind::average_pool, "average_pool", "own", emit_average_pool},
    Emitter{FusedKind::activation, "activation", "own sweep", emit_activation},
    Emitter{FusedKind::activation_pool, "activation_pool", "own sweep", emit_activation_pool},
    Emitter{FusedKind::add, "add", "own sweep", emit_add},
    Emitter{FusedKind::norm_gradient_sums, "norm_gradient_sums", "own sums sweep",
            emit_norm_gradient_sums},
    Emitter{FusedKind::norm_gradient_apply, "norm_gradient_apply", "own apply sweep",
            emit_norm_gradient_apply},
    Emitter{FusedKind::pool_gradient_apply, "pool_gradient_apply", "own apply sweep",
            emit_pool_gradient_apply},
    Emitter{FusedKind::pointwise_backward, "pointwise_backward", "own fused",
            emit_pointwise_backward},
    Emitter{FusedKind::pointwise_products, "pointwise_products", "own", emit_pointwise_backward},
    Emitter{FusedKind::stem_backward, "stem_backward", "own fused", emit_stem_backward},
    Emitter{FusedKind::stem_mask, "stem_mask", "own mask", emit_stem_mask},
    Emitter{FusedKind::average_pool_gradient, "average_pool_gradient", "own",
            emit_average_pool_gradient},
    Emitter{FusedKind::activation_gradient, "activation_gradient", "own sweep",
            emit_activation_gradient},
    Emitter{FusedKind::activation_pool_gradient, "activation_pool_gradient", "own sweep",
            emit_activation_pool_gradient},
    Emitter{FusedKind::second_moments, "second_moments", "own sweep with second moments",
            emit_second_moments},
    Emitter{FusedKind::moments_statistics, "moments_statistics", "own statistics by moments",
            emit_moments_statistics},
    Emitter{FusedKind::pointwise_forward, "pointwise_forward", "own", emit_pointwise_forward},
    Emitter{FusedKind::moments_gradient, "moments_gradient", "own gradient by moments",
            emit_moments_gradient},
    Emitter{FusedKind::moments_sums, "moments_sums", "own sums sweep with term by moments",
            emit_moments_sums},
};

}  // namespace

std::span<const Emitter> image_emitters() { return image_rows; }

}  // namespace nearmetal::cuda::emitters
