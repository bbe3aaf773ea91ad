#include "models/cuda/compiler/lowering_state.h"

namespace nearmetal::cuda {

void Lowering::forward(int i) {
  switch (graph_.node(i).op) {
    case OpKind::input:
      if (i != 0) unsupported(graph_, i);
      return;
    case OpKind::conv:
      return forward_convolution(i);
    case OpKind::batch_norm:
    case OpKind::add:
      return;  // part of a pattern that ends in a ReLU
    case OpKind::relu:
      // A ReLU before pooling is part of the pattern that ends there.
      if (graph_.is(graph_.sole_consumer(i), OpKind::max_pool)) return;
      return forward_norm(ending_in_relu(graph_, i));
    case OpKind::max_pool:
      return forward_norm_pool(i);
    case OpKind::global_average_pool:
      return forward_average_pool(i);
    case OpKind::linear:
      return;  // with the loss
    case OpKind::softmax_cross_entropy:
      return forward_classifier(i);
  }
}

void Lowering::forward_convolution(int i) {
  const int norm = graph_.sole_consumer(i);
  const Tensor* x = values_[graph_.node(i).inputs[0]];
  const bool aligned = graph_.node(i).shape.channels % 8 == 0;
  if (!graph_.is(norm, OpKind::batch_norm) || x == nullptr || !aligned) {
    unsupported(graph_, i);
  }
  Tensor* y = tensor(value_bytes(i));
  values_[i] = y;
  const Extent extent = this->extent(i);
  const std::string& norm_name = graph_.node(norm).name;
  const auto& r = resources_;
  if (is_stem(i) && choices_.own_stem_forward) return forward_stem(i);
  const bool fused = choices_.fused_statistics.contains(problem(ConvolutionOp::forward, i).key());
  if (!fused) {
    emit_convolution(i, ConvolutionOp::forward, Phase::forward, x, y);
    emit(norm_name, Phase::forward, "own statistics sweep", {y},
         [=, precision = options_.precision, &r](cudaStream_t stream) {
           launch_batch_statistics(precision, y->data, extent, r.norms[norm], r.reduction, stream);
         });
    return;
  }
  const Tensor* sums = tensor(2 * extent.channels * static_cast<int64_t>(sizeof(float)));
  emit_convolution(i, ConvolutionOp::forward_statistics, Phase::forward, x, y, sums);
  sums_[i] = sums;
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
             const StemForwardOperands operands{x->data, r.parameters.matrix(offset, size), y->data,
                                                sum, sum + stem_channels};
             launch_stem_forward(precision, operands, shape, r.reduction, stream);
           });
  kernel.flops = graph_.forward_flops(node) * static_cast<double>(options_.batch_size);
}

std::function<NormInput()> Lowering::norm_input(int conv, int norm) const {
  return [extent = extent(conv), sums = sums_[conv], norm, &r = resources_] {
    NormInput input{r.norms[norm], nullptr, nullptr, extent.rows};
    if (sums != nullptr) {
      input.sum = static_cast<const float*>(sums->data);
      input.square_sum = input.sum + extent.channels;
    }
    return input;
  };
}

int Lowering::mean_behind(const NormPattern& pattern) const {
  const int consumer = graph_.sole_consumer(pattern.output);
  return pattern.adds() && graph_.is(consumer, OpKind::global_average_pool) ? consumer : -1;
}

void Lowering::forward_norm(const NormPattern& pattern) {
  const Tensor* x = values_[pattern.conv];
  const Tensor* residual = nullptr;
  if (pattern.adds())
    residual = values_[pattern.residual >= 0 ? pattern.residual : pattern.residual_conv];
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

void Lowering::forward_norm_pool(int pool) {
  const NormPattern pattern = ending_in_pool(graph_, pool);
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
  const Tensor* x = values_[node.inputs[0]];
  if (x == nullptr) unsupported(graph_, i);
  Tensor* y = tensor(value_bytes(i));
  values_[i] = y;
  emit(node.name, Phase::forward, "own", {x, y},
       [=, precision = options_.precision, batch = options_.batch_size](cudaStream_t stream) {
         launch_average_pool(precision, x->data, y->data, batch,
                             static_cast<int>(input.height * input.width),
                             static_cast<int>(input.channels), stream);
       });
}

void Lowering::forward_classifier(int loss) {
  linear_ = graph_.node(loss).inputs[0];
  const Node& linear = graph_.node(linear_);
  if (linear.op != OpKind::linear || features() % 8 != 0) unsupported(graph_, loss);
  const Tensor* x = values_[linear.inputs[0]];
  if (x == nullptr) unsupported(graph_, loss);
  const LogitsShape shape = logits_shape();
  const int64_t elements = shape.images * shape.row_elements;
  Tensor* logits = tensor(elements * static_cast<int64_t>(sizeof(float)));
  const int64_t weight = layout_.slices[linear.parameters[0]].offset;
  emit_product(
      linear.name, Phase::forward, logits_product(shape, features()), {x, logits},
      [=, size = element_size(), &r = resources_](const Product& product, cudaStream_t stream) {
        product.launch(x->data, r.parameters.matrix(weight, size), logits->data, r.workspace,
                       stream);
      });
  Tensor* gradient = options_.forward_only ? nullptr : tensor(elements * element_size());
  gradients_[linear_].push_back(gradient);
  const int64_t bias = layout_.offset(linear.parameters[1]);
  emit(graph_.node(loss).name, Phase::forward, "own", {logits, gradient},
       [=, precision = options_.precision, &r = resources_](cudaStream_t stream) {
         launch_softmax_loss(precision, shape, static_cast<const float*>(logits->data),
                             r.parameters.values + bias, r.labels, &r.state->loss_scale, r.losses,
                             gradient == nullptr ? nullptr : gradient->data, stream);
       });
}

}  // namespace nearmetal::cuda
