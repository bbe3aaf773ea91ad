#include <utility>

#include "models/cuda/compiler/lowering_state.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/stem.h"

namespace nearmetal::cuda {

void Lowering::backward(int i) {
  if (patterns_.is_inside(i)) return;
  if (by_cudnn() && backward_by_cudnn(i)) return;
  if (const NormPattern* pattern = patterns_.norm(i)) {
    return pattern->pool >= 0 ? backward_norm_pool(*pattern) : backward_norm(*pattern);
  }
  if (const ActivationPattern* pattern = patterns_.activation(i)) backward_activation(*pattern);
  switch (graph_.node(i).op) {
    case OpKind::linear:
    case OpKind::token_linear:
      return backward_linear(i);
    case OpKind::layer_norm:
      return backward_layer_norm(i);
    case OpKind::embedding:
      return backward_embedding(i);
    case OpKind::attention:
      return backward_attention(i);
    case OpKind::class_token:
      return backward_class_token(i);
    case OpKind::positions:
      return backward_positions(i);
    case OpKind::select_token:
      return backward_select_token(i);
    case OpKind::global_average_pool:
      return backward_average_pool(i);
    case OpKind::batch_norm:
      return backward_plain_norm(i);
    case OpKind::add:
      return backward_add(i);
    case OpKind::conv:
      return backward_convolution(i);
    case OpKind::boundary:
      return backward_boundary(i);
    default:
      return;
  }
}

void Lowering::backward_average_pool(int i) {
  const Node& node = graph_.node(i);
  const Shape& input = graph_.input_shape(node);
  const Tensor* dy = gradient_of(i);
  if (values_[node.inputs[0]] == nullptr) {  // only its mean was kept, and so is its gradient
    gradients_[node.inputs[0]].push_back(dy);
    return;
  }
  Tensor* dx = tensor(value_bytes(node.inputs[0]));
  gradients_[node.inputs[0]].push_back(dx);
  emit(node.name, Phase::backward, "own", {dy, dx},
       [=, precision = options_.precision, batch = options_.batch_size](cudaStream_t stream) {
         launch_average_pool_backward(precision, dy->data, dx->data, batch,
                                      static_cast<int>(input.height * input.width),
                                      static_cast<int>(input.channels), stream);
       });
}

Lowering::NormTensors Lowering::incoming_gradient(const NormPattern& pattern) {
  const auto [dy, dy_second] = gradients_of(pattern.output);
  if (const Tensor* even_pixels = even_pixel_gradients_[pattern.output]) {
    return {Incoming::two_second_at_even_pixels, dy, even_pixels};
  }
  if (mean_behind(pattern) >= 0) return {Incoming::of_mean, dy, dy_second};
  return {dy_second == nullptr ? Incoming::one : Incoming::two, dy, dy_second};
}

std::function<NormBackwardOperands()> Lowering::norm_backward_operands(const NormPattern& pattern,
                                                                       const NormTensors& tensors) {
  const bool dual = pattern.residual_norm >= 0;
  return [=, rows = extent(pattern.conv).rows, image = image_size(pattern.output),
          mask = masks_[pattern.output], slot = norm_slot(),
          residual_x = dual ? values_[pattern.residual_conv] : nullptr, &r = resources_] {
    const auto data = [](const Tensor* tensor) {
      return tensor == nullptr ? nullptr : tensor->data;
    };
    NormBackwardOperands operands;
    operands.count = rows;
    operands.incoming = tensors.incoming;
    operands.dy = tensors.dy->data;
    operands.dy_second = data(tensors.dy_second);
    operands.image = image;
    operands.mask = static_cast<const uint8_t*>(data(mask));
    operands.x = data(tensors.x);
    operands.state = r.norm(slot, pattern.norm);
    operands.dz = data(tensors.dz);
    if (dual) {
      operands.residual_x = residual_x->data;
      operands.residual_state = r.norm(slot, pattern.residual_norm);
    }
    return operands;
  };
}

void Lowering::emit_norm_sums(const NormPattern& pattern, const NormTensors& tensors) {
  const auto& [incoming, dy, dy_second, x, dz] = tensors;
  const Tensor* residual_x = pattern.residual_norm < 0 ? nullptr : values_[pattern.residual_conv];
  emit(name_of(graph_, pattern), Phase::backward, "own sums sweep",
       {dy, dy_second, masks_[pattern.output], x, residual_x, dz},
       [=, operands = norm_backward_operands(pattern, tensors), extent = extent(pattern.conv),
        precision = options_.precision, &r = resources_](cudaStream_t stream) {
         launch_norm_backward_sums(precision, operands(), extent, r.reduction, stream);
       });
}

void Lowering::backward_norm(const NormPattern& pattern) {
  if (by_moments(pattern)) return backward_norm_by_moments(pattern);
  const bool dual = pattern.residual_norm >= 0;
  const bool summed = moments_behind(pattern) >= 0;
  NormTensors tensors = incoming_gradient(pattern);
  const bool fused = fuses_backward(pattern);
  tensors.x = values_[pattern.conv];
  if (pattern.adds()) {
    tensors.dz = tensor(value_bytes(pattern.output));
  } else if (summed) {
    tensors.dz = tensors.dy;
  }
  const auto [incoming, dy, dy_second, x, dz] = tensors;
  if (pattern.residual >= 0) gradients_[pattern.residual].push_back(dz);
  if (!summed) emit_norm_sums(pattern, tensors);
  if (fused) {
    pending_[pattern.conv] = {pattern.norm, dz != nullptr ? dz : dy, dz == nullptr};
    if (dual) pending_[pattern.residual_conv] = {pattern.residual_norm, dz, false};
    return;
  }

  const Tensor* residual_x = dual ? values_[pattern.residual_conv] : nullptr;
  const Tensor* dx = tensor(value_bytes(pattern.conv));
  const Tensor* residual_dx = dual ? tensor(value_bytes(pattern.residual_conv)) : nullptr;
  gradients_[pattern.conv].push_back(dx);
  if (dual) gradients_[pattern.residual_conv].push_back(residual_dx);
  std::vector<const Tensor*> used{dz, x, residual_x, dx, residual_dx};
  if (dz == nullptr) used = {dy, dy_second, x, dx};
  emit(name_of(graph_, pattern), Phase::backward, "own apply sweep", used,
       [=, read = norm_backward_operands(pattern, tensors), extent = extent(pattern.conv),
        precision = options_.precision, &r = resources_](cudaStream_t stream) {
         NormBackwardOperands operands = read();
         operands.dx = dx->data;
         if (dual) operands.residual_dx = residual_dx->data;
         launch_norm_backward_apply(precision, operands, extent, r.reduction.multiprocessors,
                                    stream);
       });
}

void Lowering::backward_norm_pool(const NormPattern& pattern) {
  const int64_t slot = norm_slot();
  const int pool = pattern.pool;
  const auto [dy, dy_second] = gradients_of(pool);
  const Tensor* x = values_[pattern.conv];
  const Tensor* winner = masks_[pool];
  const Tensor* winner_x = winner_x_[pool];
  Tensor* dz = tensor(value_bytes(pool));
  const auto& r = resources_;
  const PoolShape shape = pool_shape(pool);
  const Precision precision = options_.precision;
  const std::string name = name_of(graph_, pattern);
  emit(name, Phase::backward, "own sums sweep", {dy, dy_second, winner_x, dz},
       [=, dy = dy, dy_second = dy_second, &r](cudaStream_t stream) {
         NormBackwardOperands operands;
         operands.count = shape.input().rows;
         operands.incoming = dy_second == nullptr ? Incoming::one : Incoming::two;
         operands.dy = dy->data;
         if (dy_second != nullptr) operands.dy_second = dy_second->data;
         operands.x = winner_x->data;
         operands.state = r.norm(slot, pattern.norm);
         operands.dz = dz->data;
         launch_norm_backward_sums(precision, operands, shape.output(), r.reduction, stream);
       });
  if (is_stem(pattern.conv) && choices_.own_stem_backward) {
    pending_stem_ = {pool, dz};
    return;
  }
  Tensor* dx = tensor(value_bytes(pattern.conv));
  gradients_[pattern.conv].push_back(dx);
  emit(name, Phase::backward, "own apply sweep", {dz, winner, x, dx}, [=, &r](cudaStream_t stream) {
    const PoolBackwardOperands operands{dz->data, static_cast<const uint8_t*>(winner->data),
                                        x->data, r.norm(slot, pattern.norm), dx->data};
    launch_pool_backward_apply(precision, shape, operands, r.reduction.multiprocessors, stream);
  });
}

void Lowering::backward_convolution(int i) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  if (pending_.contains(i)) return backward_pointwise(i);
  if (is_stem(i) && pending_stem_) return backward_stem(i);
  if (const NormPattern* pattern = moments_pattern(i)) {
    return backward_convolution_by_moments(i, *pattern);
  }
  const Tensor* dy = gradient_of(i);
  emit_convolution(i, ConvolutionOp::backward_weights, Phase::backward, values_[input], dy);
  if (is_stem(i)) return mask_stem_gradient(node);
  const ConvolutionShape shape = problem(ConvolutionOp::backward_data, i).shape;
  Tensor* dx = tensor(shape.input_elements() * element_size());
  if (leaves_even_pixels(i)) {
    even_pixel_gradients_[input] = dx;
  } else {
    gradients_[input].push_back(dx);
  }
  emit_convolution(i, ConvolutionOp::backward_data, Phase::backward, dx, dy);
}

bool Lowering::fuses_backward(const NormPattern& pattern) const {
  // The kernel recomputes the mask of a ReLU from one gradient alone, where channels do not grow.
  const bool one_gradient = gradients_[pattern.output].size() == 1;
  const bool widens =
      pointwise_shape(pattern.conv).output_channels > pointwise_shape(pattern.conv).input_channels;
  return fuses_backward(pattern.conv) && (pattern.adds() || (one_gradient && !widens)) &&
         (pattern.residual_norm < 0 || fuses_backward(pattern.residual_conv));
}

bool Lowering::fuses_backward(int conv) const {
  return graph_.node(conv).window.stride == 1 &&
         choices_.fused_backward.contains(problem(ConvolutionOp::backward_data, conv).key());
}

PointwiseShape Lowering::pointwise_shape(int conv) const {
  const Extent extent = this->extent(conv);
  return {extent.rows, extent.channels,
          static_cast<int>(graph_.input_shape(graph_.node(conv)).channels)};
}

void Lowering::backward_pointwise(int i) {
  const int64_t slot = norm_slot();
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  const auto [norm, dz, relu] = pending_.at(i);
  const Tensor *x = values_[input], *y = values_[i];
  Tensor* dx = tensor(value_bytes(input));
  std::string name = graph_.node(norm).name + " + " + node.name;
  const Tensor* second = nullptr;
  const int end = joined_end(i);
  if (end >= 0) {
    second = std::exchange(gradients_[input], {}).front();
    joined_.insert(input);
    name += " + " + graph_.node(input).name;
  }
  gradients_[input].push_back(dx);
  const PointwiseShape shape = pointwise_shape(i);
  const auto& r = resources_;
  Tensor* partial_sums =
      tensor(pointwise_backward_scratch_bytes(shape, r.reduction.multiprocessors));
  const int64_t offset = layout_.slices[node.parameters[0]].offset;
  const auto operands = [=, norm = norm, dz = dz, relu = relu, size = element_size(), &r] {
    PointwiseBackwardOperands operands;
    operands.dz = dz->data;
    operands.y = y->data;
    operands.state = r.norm(slot, norm);
    operands.relu = relu;
    operands.x = x->data;
    operands.weights = r.parameters.operand(offset, size);
    operands.dx = dx->data;
    if (end >= 0) {
      operands.dx_second = second->data;
      operands.dx_sums = r.norm(slot, end).bias_gradient;
    }
    operands.weight_gradient = r.parameters.gradient(offset, size);
    operands.partial_sums = static_cast<float*>(partial_sums->data);
    return operands;
  };
  Kernel& kernel = emit(name, Phase::backward, "own fused", {dz, y, x, second, dx},
                        [=, precision = options_.precision, &r](cudaStream_t stream) {
                          launch_pointwise_backward(precision, operands(), shape,
                                                    r.reduction.multiprocessors, stream);
                        });
  kernel.operands.push_back(partial_sums);  // stays in L2: no part of the bytes
  kernel.gradient_of = node.parameters[0];
  kernel.flops = 2 * graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
}

void Lowering::backward_stem(int i) {
  const int64_t slot = norm_slot();
  const Node& node = graph_.node(i);
  const auto [pool, dz] = *pending_stem_;
  const NormPattern& pattern = *patterns_.norm(pool);
  const Tensor *images = values_[node.inputs[0]], *x = values_[i], *winner = masks_[pool];
  const auto& r = resources_;
  Tensor* partial_sums = tensor(stem_backward_scratch_bytes(r.reduction.multiprocessors));
  const int64_t offset = layout_.slices[node.parameters[0]].offset;
  Kernel& kernel = emit(
      name_of(graph_, pattern) + " + " + node.name, Phase::backward, "own fused",
      {dz, winner, x, images},
      [=, dz = dz, precision = options_.precision, shape = stem_shape(i),
       pool_shape = pool_shape(pool), size = element_size(), &r](cudaStream_t stream) {
        const StemBackwardOperands operands{{dz->data, static_cast<const uint8_t*>(winner->data),
                                             x->data, r.norm(slot, pattern.norm), nullptr},
                                            images->data,
                                            r.parameters.gradient(offset, size),
                                            static_cast<float*>(partial_sums->data)};
        launch_stem_backward(precision, operands, shape, pool_shape, r.reduction.multiprocessors,
                             stream);
      });
  kernel.operands.push_back(partial_sums);
  kernel.gradient_of = node.parameters[0];
  kernel.flops = graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
}

void Lowering::mask_stem_gradient(const Node& conv) {
  const ParameterSlice& slice = layout_.slices[conv.parameters[0]];
  if (choices_.stem != StemForm::space_to_depth) return;  // padded channels are zero images
  emit(conv.name, Phase::backward, "own mask", {},
       [=, precision = options_.precision, offset = slice.offset, elements = slice.elements,
        size = element_size(), &r = resources_](cudaStream_t stream) {
         launch_mask_gradient(precision, r.parameters.gradient(offset, size), r.stem_mask, elements,
                              stream);
       })
      .gradient_of = conv.parameters[0];
}

}  // namespace nearmetal::cuda
