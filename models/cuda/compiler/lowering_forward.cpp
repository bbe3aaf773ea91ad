#include <stdexcept>

#include "models/cuda/compiler/lowering_state.h"

namespace nearmetal::cuda {

const Tensor* Lowering::value(int node) const {
  if (values_[node] == nullptr)
    throw std::logic_error("no kernel leaves " + graph_.node(node).name);
  return values_[node];
}

void Lowering::forward(int i) {
  if (patterns_.is_inside(i)) return;  // the end of its pattern computes it
  if (by_cudnn() && forward_by_cudnn(i)) return;
  switch (graph_.node(i).op) {
    case OpKind::input:
      if (!graph_.is(graph_.sole_consumer(i), OpKind::conv)) {
        unsupported(graph_.node(i), "one convolution must read the image, and nothing else");
      }
      return;
    case OpKind::conv:
      return forward_convolution(i);
    case OpKind::batch_norm:
      return forward_plain_norm(i);
    case OpKind::add:
      return forward_add(i);
    case OpKind::relu:
    case OpKind::max_pool:
      if (const NormPattern* pattern = patterns_.norm(i)) {
        return pattern->pool >= 0 ? forward_norm_pool(*pattern) : forward_norm(*pattern);
      }
      return forward_activation(*patterns_.activation(i));
    case OpKind::global_average_pool:
      return forward_average_pool(i);
    case OpKind::linear:
      forward_linear(i);
      if (const auto* pattern = patterns_.activation(i)) forward_activation(*pattern);
      return;
    case OpKind::gelu:
      return forward_activation(*patterns_.activation(i));
    case OpKind::token_linear:
      return graph_.are_logits(i) ? forward_linear(i) : forward_token_linear(i);
    case OpKind::layer_norm:
      return forward_layer_norm(i);
    case OpKind::attention:
      return forward_attention(i);
    case OpKind::class_token:
      return forward_class_token(i);
    case OpKind::positions:
      return forward_positions(i);
    case OpKind::select_token:
      return forward_select_token(i);
    case OpKind::token_ids:
      return;
    case OpKind::embedding:
      return forward_embedding(i);
    case OpKind::span_loss:
      return forward_span_loss(i);
    case OpKind::softmax_cross_entropy:
      return forward_loss(i);
    case OpKind::boundary:
      if (i > 0) values_[i] = value(graph_.node(i).inputs[0]);
      return;  // the received value was put there before
  }
}

void Lowering::forward_convolution(int i) {
  if (moments_pattern(i) != nullptr) return;  // computed with its batch norm
  const int norm = summed_norm(i);
  const Tensor* x = value(graph_.node(i).inputs[0]);
  if (graph_.node(i).shape.channels % 8 != 0) {
    unsupported(graph_.node(i), "its channels are not a multiple of 8");
  }
  Tensor* y = tensor(value_bytes(i));
  values_[i] = y;
  if (norm >= 0 && is_stem(i) && choices_.own_stem_forward) return forward_stem(i);
  const auto fused = [&](ConvolutionOp op) {
    return choices_.fused_sweeps.contains(problem(op, i).key());
  };
  if (norm >= 0 && fused(ConvolutionOp::forward_statistics)) {
    const int64_t channels = graph_.node(i).shape.channels;
    const Tensor* sums = tensor(2 * channels * static_cast<int64_t>(sizeof(float)));
    emit_convolution(i, ConvolutionOp::forward_statistics, Phase::forward, x, y, sums);
    sums_[i] = sums;
    return;
  }
  if (const auto found = epilogue(i); found && fused(found->op)) {
    values_[found->pattern->output()] = y;
    const int residual = found->pattern->residual;
    emit_convolution(i, found->op, Phase::forward, x, y, residual < 0 ? nullptr : value(residual));
    return;
  }
  emit_convolution(i, ConvolutionOp::forward, Phase::forward, x, y);
  if (norm >= 0) forward_statistics(norm);
  if (const auto* pattern = patterns_.activation(i)) forward_activation(*pattern);
}

void Lowering::forward_statistics(int norm) {
  const Tensor* x = value(graph_.node(norm).inputs[0]);
  emit(graph_.node(norm).name, Phase::forward, "own statistics sweep", {x},
       [=, precision = options_.precision, extent = extent(norm), slot = norm_slot(),
        &r = resources_](cudaStream_t stream) {
         launch_batch_statistics(precision, x->data, extent, r.norm(slot, norm), r.reduction,
                                 stream);
       });
}

void Lowering::forward_stem(int i) {
  const Node& node = graph_.node(i);
  const Tensor *x = values_[node.inputs[0]], *y = values_[i];
  const Tensor* sums = tensor(2 * stem_channels * static_cast<int64_t>(sizeof(float)));
  sums_[i] = sums;
  const int64_t offset = layout_.slices[node.parameters[0]].offset;
  Kernel& kernel =
      emit(node.name, Phase::forward, "own", {x, y, sums},
           [=, precision = options_.precision, shape = stem_shape(i), size = element_size(),
            &r = resources_](cudaStream_t stream) {
             auto* sum = static_cast<float*>(sums->data);
             const StemForwardOperands operands{x->data, r.parameters.operand(offset, size),
                                                y->data, sum, sum + stem_channels};
             launch_stem_forward(precision, operands, shape, r.reduction, stream);
           });
  kernel.flops = graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
}

std::function<NormInput()> Lowering::norm_input(int conv, int norm) const {
  return [extent = extent(conv), sums = sums_[conv], norm, slot = norm_slot(), &r = resources_] {
    NormInput input{r.norm(slot, norm)};
    if (sums != nullptr) {
      input.sum = static_cast<const float*>(sums->data);
      input.square_sum = input.sum + extent.channels;
    }
    return input;
  };
}

int Lowering::mean_behind(const NormPattern& pattern) const {
  const int consumer = graph_.sole_consumer(pattern.output);
  const bool is_mean = graph_.is(consumer, OpKind::global_average_pool);
  return pattern.residual >= 0 && is_mean ? consumer : -1;
}

void Lowering::forward_norm(const NormPattern& pattern) {
  if (by_moments(pattern)) return forward_norm_by_moments(pattern);
  if (const int conv = moments_behind(pattern); conv >= 0) {
    return forward_norm_with_moments(pattern, conv);
  }
  const Tensor* x = values_[pattern.conv];
  const Tensor* residual = nullptr;
  if (pattern.adds())
    residual = value(pattern.residual >= 0 ? pattern.residual : pattern.residual_conv);
  const int mean = mean_behind(pattern);
  const int written = mean >= 0 ? mean : pattern.output;
  Tensor* y = tensor(value_bytes(written));
  const Extent extent = this->extent(pattern.conv);
  const int width = static_cast<int>(16 / element_size());
  Tensor* mask =
      pattern.adds() && !options_.forward_only ? tensor(extent.elements() / width) : nullptr;
  values_[written] = y;
  masks_[pattern.output] = mask;
  const auto norm = norm_input(pattern.conv, pattern.norm);
  std::function<NormInput()> residual_norm;
  const Tensor* residual_sums = nullptr;
  if (pattern.residual_norm >= 0) {
    residual_norm = norm_input(pattern.residual_conv, pattern.residual_norm);
    residual_sums = sums_[pattern.residual_conv];
  }
  const int mean_of_pixels = mean >= 0 ? image_size(pattern.output).pixels() : 0;
  std::string name = name_of(graph_, pattern);
  if (mean >= 0) name += " + " + graph_.node(mean).name;
  emit(name, Phase::forward, "own sweep",
       {x, residual, y, mask, sums_[pattern.conv], residual_sums},
       [=, precision = options_.precision, &r = resources_](cudaStream_t stream) {
         NormaliseOperands operands;
         operands.x = x->data;
         operands.norm = norm();
         if (residual != nullptr) operands.residual = residual->data;
         const NormInput other = residual_norm ? residual_norm() : NormInput{};
         if (residual_norm) operands.residual_norm = &other;
         operands.relu = true;
         if (mask != nullptr) operands.mask = static_cast<uint8_t*>(mask->data);
         operands.mean_of_pixels = mean_of_pixels;
         operands.y = y->data;
         launch_normalise(precision, operands, extent, r.reduction.multiprocessors, stream);
       });
}

void Lowering::forward_norm_pool(const NormPattern& pattern) {
  const int pool = pattern.pool;
  const Tensor* x = values_[pattern.conv];
  Tensor* y = tensor(value_bytes(pool));
  Tensor* winner = nullptr;
  Tensor* winner_x = nullptr;
  if (!options_.forward_only) {
    winner = tensor(value_bytes(pool) / element_size());
    winner_x = tensor(value_bytes(pool));
  }
  values_[pool] = y;
  masks_[pool] = winner;
  winner_x_[pool] = winner_x;
  emit(name_of(graph_, pattern), Phase::forward, "own sweep",
       {x, y, winner, winner_x, sums_[pattern.conv]},
       [=, precision = options_.precision, shape = pool_shape(pool),
        norm = norm_input(pattern.conv, pattern.norm), &r = resources_](cudaStream_t stream) {
         NormPoolOperands operands{x->data, norm(), y->data, nullptr, nullptr};
         if (winner != nullptr) {
           operands.winner = static_cast<uint8_t*>(winner->data);
           operands.winner_x = winner_x->data;
         }
         launch_norm_pool(precision, shape, operands, r.reduction.multiprocessors, stream);
       });
}

void Lowering::forward_average_pool(int i) {
  if (values_[i] != nullptr) return;  // the sweep before it has done it
  const Node& node = graph_.node(i);
  const Shape& input = graph_.input_shape(node);
  const Tensor* x = value(node.inputs[0]);
  Tensor* y = tensor(value_bytes(i));
  values_[i] = y;
  emit(node.name, Phase::forward, "own", {x, y},
       [=, precision = options_.precision, batch = options_.batch_size](cudaStream_t stream) {
         launch_average_pool(precision, x->data, y->data, batch,
                             static_cast<int>(input.height * input.width),
                             static_cast<int>(input.channels), stream);
       });
}

}  // namespace nearmetal::cuda
