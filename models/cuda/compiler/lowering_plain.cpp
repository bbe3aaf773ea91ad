// Nodes that no batch norm's pattern takes: bias, ReLU and pooling, and a kernel for each other
// node.
#include "models/cuda/compiler/lowering_state.h"
#include "models/cuda/kernels/activation.h"

namespace nearmetal::cuda {

std::optional<Lowering::Epilogue> Lowering::epilogue(int conv) const {
  int end = conv;
  const ActivationPattern* pattern = patterns_.activation(end);
  while (pattern == nullptr && (end = graph_.sole_consumer(end)) >= 0) {
    pattern = patterns_.activation(end);
  }
  const bool fits = pattern != nullptr && pattern->input == conv && pattern->bias;
  if (!fits || pattern->pool >= 0 || pattern->gelu >= 0) return std::nullopt;
  return Epilogue{pattern, pattern->residual >= 0 ? ConvolutionOp::forward_residual
                           : pattern->relu >= 0   ? ConvolutionOp::forward_activation
                                                  : ConvolutionOp::forward_bias};
}

std::function<Activation()> Lowering::activation(const ActivationPattern& pattern) const {
  const int64_t bias = pattern.bias ? layout_.offset(graph_.node(pattern.input).parameters[1]) : -1;
  const Tensor* residual = pattern.residual < 0 ? nullptr : value(pattern.residual);
  return [=, relu = pattern.relu >= 0, &r = resources_] {
    return Activation{bias < 0 ? nullptr : r.parameters.values + bias, relu,
                      residual == nullptr ? nullptr : residual->data};
  };
}

void Lowering::forward_activation(const ActivationPattern& pattern) {
  const int output = pattern.output();
  if (values_[output] != nullptr && output != pattern.input) return;  // with its convolution
  if (pattern.gelu >= 0) return forward_gelu(pattern);
  if (by_cudnn()) return forward_cudnn_activation(pattern);
  const Tensor* x = value(pattern.input);
  const auto activation = this->activation(pattern);
  const std::string name = name_of(graph_, pattern);
  if (pattern.pool >= 0) {
    const Node& pool = graph_.node(pattern.pool);
    if (pool.window.kernel > widest_pool_window) unsupported(pool, "its window is too wide");
    Tensor* y = tensor(value_bytes(output));
    Tensor* winner = options_.forward_only ? nullptr : tensor(value_bytes(output) / element_size());
    values_[output] = y;
    masks_[output] = winner;
    emit(name, Phase::forward, "own sweep", {x, y, winner},
         [=, precision = options_.precision, shape = pool_shape(output)](cudaStream_t stream) {
           launch_activation_pool(precision, shape, x->data, activation(), y->data,
                                  winner == nullptr ? nullptr : static_cast<uint8_t*>(winner->data),
                                  stream);
         });
    return;
  }
  // In place where nothing else reads what a product has left.
  const Tensor* y = pattern.bias ? x : tensor(value_bytes(output));
  values_[output] = y;
  const Tensor* residual = pattern.residual < 0 ? nullptr : value(pattern.residual);
  Kernel& kernel = emit(name, Phase::forward, "own sweep", {x, y == x ? nullptr : y, residual},
                        [=, precision = options_.precision, extent = extent(output),
                         &r = resources_](cudaStream_t stream) {
                          launch_activation(precision, x->data, activation(), y->data, extent,
                                            r.reduction.multiprocessors, stream);
                        });
  kernel.bytes = (residual == nullptr ? 2.0 : 3.0) * static_cast<double>(x->bytes);
}

void Lowering::backward_activation(const ActivationPattern& pattern) {
  if (pattern.gelu >= 0) return backward_gelu(pattern);
  if (by_cudnn()) return backward_cudnn_activation(pattern);
  if (pattern.pool >= 0) return backward_activation_pool(pattern);
  const int output = pattern.output();
  if (summed_biases_.contains(output)) return;
  const bool masks = pattern.relu >= 0;
  const Tensor* dy = gradient_of(output);
  const Tensor* y = masks ? value(output) : nullptr;
  Tensor* dx = masks ? tensor(value_bytes(output)) : nullptr;
  if (masks) gradients_[pattern.input].push_back(dx);
  const int64_t bias =
      pattern.bias ? layout_.slices[graph_.node(pattern.input).parameters[1]].offset : -1;
  emit(name_of(graph_, pattern), Phase::backward, "own sweep", {dy, y, dx},
       [=, precision = options_.precision, extent = extent(output),
        &r = resources_](cudaStream_t stream) {
         ActivationGradient operands;
         operands.dy = dy->data;
         if (y != nullptr) operands.y = y->data;
         if (dx != nullptr) operands.dx = dx->data;
         if (bias >= 0) operands.bias_gradient = r.parameters.vector_gradients + bias;
         launch_activation_backward(precision, operands, extent, r.reduction, stream);
       });
}

void Lowering::backward_activation_pool(const ActivationPattern& pattern) {
  const Tensor* dy = gradient_of(pattern.pool);
  const Tensor* winner = masks_[pattern.pool];
  Tensor* dx = tensor(value_bytes(pattern.input));
  gradients_[pattern.input].push_back(dx);
  const int64_t bias =
      pattern.bias ? layout_.slices[graph_.node(pattern.input).parameters[1]].offset : -1;
  emit(name_of(graph_, pattern), Phase::backward, "own sweep", {dy, winner, dx},
       [=, precision = options_.precision, shape = pool_shape(pattern.pool),
        &r = resources_](cudaStream_t stream) {
         PoolGradientOperands operands{dy->data, static_cast<const uint8_t*>(winner->data),
                                       dx->data};
         if (bias >= 0) operands.bias_gradient = r.parameters.vector_gradients + bias;
         launch_activation_pool_backward(precision, shape, operands, r.reduction, stream);
       });
}

void Lowering::forward_plain_norm(int i) {
  const int input = graph_.node(i).inputs[0];
  const Tensor* x = value(input);
  if (!graph_.is(input, OpKind::conv) || graph_.norm_behind(input) != i) forward_statistics(i);
  Tensor* y = tensor(value_bytes(i));
  values_[i] = y;
  emit(graph_.node(i).name, Phase::forward, "own sweep", {x, y, sums_[input]},
       [=, precision = options_.precision, extent = extent(i), norm = norm_input(input, i),
        &r = resources_](cudaStream_t stream) {
         NormaliseOperands operands;
         operands.x = x->data;
         operands.norm = norm();
         operands.y = y->data;
         launch_normalise(precision, operands, extent, r.reduction.multiprocessors, stream);
       });
}

void Lowering::backward_plain_norm(int i) {
  const int input = graph_.node(i).inputs[0];
  const Tensor *x = value(input), *dy = gradient_of(i);
  Tensor* dx = tensor(value_bytes(i));
  gradients_[input].push_back(dx);
  const auto& r = resources_;
  const Precision precision = options_.precision;
  const Extent extent = this->extent(i);
  const int64_t slot = norm_slot();
  const auto operands = [=, &r] {
    NormBackwardOperands operands;
    operands.count = extent.rows;
    operands.relu = false;
    operands.dy = dy->data;
    operands.x = x->data;
    operands.state = r.norm(slot, i);
    operands.dx = dx->data;
    return operands;
  };
  emit(graph_.node(i).name, Phase::backward, "own sums sweep", {dy, x},
       [=, &r](cudaStream_t stream) {
         launch_norm_backward_sums(precision, operands(), extent, r.reduction, stream);
       });
  emit(graph_.node(i).name, Phase::backward, "own apply sweep", {dy, x, dx},
       [=, &r](cudaStream_t stream) {
         launch_norm_backward_apply(precision, operands(), extent, r.reduction.multiprocessors,
                                    stream);
       });
}

void Lowering::forward_add(int i) {
  if (values_[i] != nullptr) return;  // the product before it has added the other summand
  const std::vector<int>& inputs = graph_.node(i).inputs;
  const Tensor *left = value(inputs[0]), *right = value(inputs[1]);
  Tensor* sum = tensor(value_bytes(i));
  values_[i] = sum;
  emit(graph_.node(i).name, Phase::forward, "own sweep", {left, right, sum},
       [=, precision = options_.precision, elements = extent(i).elements()](cudaStream_t stream) {
         launch_add(precision, left->data, right->data, sum->data, elements, stream);
       });
}

void Lowering::backward_add(int i) {
  const Tensor* gradient = gradient_of(i);
  for (const int input : graph_.node(i).inputs) gradients_[input].push_back(gradient);
}

std::pair<const Tensor*, const Tensor*> Lowering::gradients_of(int node, size_t most) {
  auto& found = gradients_[node];
  if (found.empty()) unsupported(graph_.node(node), "the loss does not depend on it");
  while (found.size() > most) {
    const Tensor *left = found.back(), *right = found[found.size() - 2];
    const std::string name = graph_.node(node).name + " gradients";
    found.pop_back();
    if (by_cudnn()) {
      found.back() = cudnn_sum(name, Phase::backward, left, right, layer_shape(node));
      continue;
    }
    Tensor* sum = tensor(left->bytes);
    emit(name, Phase::backward, "own sweep", {left, right, sum},
         [=, precision = options_.precision,
          elements = left->bytes / element_size()](cudaStream_t stream) {
           launch_add(precision, left->data, right->data, sum->data, elements, stream);
         });
    found.back() = sum;
  }
  return {found[0], found.size() == 2 ? found[1] : nullptr};
}

}  // namespace nearmetal::cuda
