// The operations of transformers on tokens, except products and attention.
#include <algorithm>

#include "models/cuda/compiler/lowering_state.h"
#include "models/cuda/kernels/activation.h"
#include "models/cuda/kernels/layer_norm.h"

namespace nearmetal::cuda {

TokenExtent Lowering::token_extent(int node) const {
  const Shape& shape = graph_.node(node).shape;
  return {options_.batch_size, shape.tokens(), shape.channels};
}

void Lowering::require_packs(int node) const {
  if (graph_.node(node).shape.channels % 8 != 0) {
    unsupported(graph_.node(node), "its features are not a multiple of 8");
  }
}

void Lowering::forward_layer_norm(int i) {
  const Node& node = graph_.node(i);
  require_packs(i);
  if (const int64_t most = most_layer_norm_features(options_.precision);
      node.shape.channels > most) {
    unsupported(node, "it has more than " + std::to_string(most) + " features");
  }
  const Tensor *x = value(node.inputs[0]), *y = tensor(value_bytes(i));
  values_[i] = y;
  const Extent extent = this->extent(i);
  const Tensor* statistics = nullptr;
  if (!options_.forward_only) statistics = tensor(layer_norm_statistics_bytes(extent.rows));
  sums_[i] = statistics;
  emit(node.name, Phase::forward, "own sweep", {x, y, statistics},
       [=, precision = options_.precision, epsilon = node.epsilon,
        scale = layout_.offset(node.parameters[0]), bias = layout_.offset(node.parameters[1]),
        &r = resources_](cudaStream_t stream) {
         LayerNormForward operands;
         operands.x = x->data;
         operands.scale = r.parameters.values + scale;
         operands.bias = r.parameters.values + bias;
         operands.epsilon = epsilon;
         operands.y = y->data;
         if (statistics != nullptr) operands.statistics = static_cast<float*>(statistics->data);
         launch_layer_norm(precision, operands, extent, stream);
       });
}

int Lowering::bias_before(int norm) const {
  if (by_cudnn()) return -1;
  const int input = graph_.node(norm).inputs[0];
  // The first of its readers is the last that leaves a gradient.
  if (graph_.consumers(input)[0] != norm) return -1;
  const auto has_bias = [&](int node, int reader) {
    const ActivationPattern* pattern = patterns_.activation(node);
    return graph_.is(node, OpKind::token_linear) && graph_.sole_consumer(node) == reader &&
           pattern != nullptr && pattern->bias;
  };
  if (has_bias(input, norm)) return input;
  if (!graph_.is(input, OpKind::add)) return -1;
  for (const int added : graph_.node(input).inputs) {
    if (has_bias(added, input)) return added;
  }
  return -1;
}

// Adds another gradient of what it reads, such as that of a residual branch, where one is there. Of
// what it leaves it takes the sum over the tokens where that is the gradient of a bias.
void Lowering::backward_layer_norm(int i) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  std::vector<const Tensor*>& gradients = gradients_[input];
  // No kernel takes a second gradient of both what it leaves and what it reads.
  const auto [dy, dy_second] = gradients_of(i, gradients.empty() ? 2 : 1);
  const Tensor *x = value(input), *statistics = sums_[i], *other = nullptr;
  if (!gradients.empty()) {
    other = gradients.back();
    gradients.pop_back();
  }
  const int linear = gradients.empty() ? bias_before(i) : -1;
  if (linear >= 0) summed_biases_.insert(linear);
  const int summed = linear < 0 ? -1 : graph_.node(linear).parameters[1];
  const Tensor* dx = tensor(value_bytes(input));
  gradients.push_back(dx);
  const Extent extent = this->extent(i);
  const Precision precision = options_.precision;
  const auto& r = resources_;
  const Tensor* partial_sums =
      tensor(layer_norm_sums_bytes(precision, extent, summed >= 0, r.reduction.multiprocessors));
  norm_sums_.push_back({partial_sums, extent, node.parameters[0], node.parameters[1], summed});
  const std::string name =
      summed < 0 ? node.name : node.name + " + " + graph_.parameters()[summed].name;
  emit(name, Phase::backward, "own sweep", {x, dy, dy_second, statistics, other, dx, partial_sums},
       [=, dy = dy, dy_second = dy_second, scale = layout_.offset(node.parameters[0]),
        &r](cudaStream_t stream) {
         LayerNormBackward operands;
         operands.x = x->data;
         operands.dy = dy->data;
         if (dy_second != nullptr) operands.dy_second = dy_second->data;
         if (other != nullptr) operands.other = other->data;
         operands.scale = r.parameters.values + scale;
         operands.statistics = static_cast<const float*>(statistics->data);
         operands.dx = dx->data;
         operands.sums_dx = summed >= 0;
         operands.partial_sums = static_cast<float*>(partial_sums->data);
         launch_layer_norm_backward(precision, operands, extent, r.reduction.multiprocessors,
                                    stream);
       });
}

// One launch for many: each alone would take as long as the launch.
void Lowering::sum_layer_norms() {
  for (size_t first = 0; first < norm_sums_.size(); first += LayerNormSumsList::most) {
    const size_t end = std::min(norm_sums_.size(), first + LayerNormSumsList::most);
    const std::vector<NormSums> sums(norm_sums_.begin() + first, norm_sums_.begin() + end);
    std::vector<const Tensor*> partial_sums;
    for (const NormSums& of : sums) partial_sums.push_back(of.partial_sums);
    emit("layer norms", Phase::backward, "own sums", std::move(partial_sums),
         [=, precision = options_.precision, &layout = layout_,
          &r = resources_](cudaStream_t stream) {
           const auto gradient_of = [&](int parameter) -> float* {
             if (parameter < 0) return nullptr;
             return r.parameters.vector_gradients + layout.slices[parameter].offset;
           };
           LayerNormSumsList list;
           for (const NormSums& of : sums) {
             list.sums[list.count++] = {
                 static_cast<const float*>(of.partial_sums->data),
                 layer_norm_backward_blocks(precision, of.extent, r.reduction.multiprocessors),
                 of.extent.channels,
                 {gradient_of(of.scale), gradient_of(of.bias), gradient_of(of.bias_before)}};
           }
           launch_layer_norm_sums(list, stream);
         });
  }
  norm_sums_.clear();
}

void Lowering::forward_gelu(const ActivationPattern& pattern) {
  const int output = pattern.output();
  require_packs(output);
  const Tensor* x = value(pattern.input);
  // The backward pass reads x.
  const bool in_place = pattern.bias && options_.forward_only;
  const Tensor* y = in_place ? x : tensor(value_bytes(output));
  values_[output] = y;
  Kernel& kernel =
      emit(name_of(graph_, pattern), Phase::forward, "own sweep", {x, in_place ? nullptr : y},
           [=, precision = options_.precision, extent = extent(output),
            activation = activation(pattern), &r = resources_](cudaStream_t stream) {
             launch_gelu(precision, x->data, activation().bias, y->data, extent,
                         r.reduction.multiprocessors, stream);
           });
  kernel.bytes = 2.0 * static_cast<double>(x->bytes);
}

void Lowering::backward_gelu(const ActivationPattern& pattern) {
  const Tensor *dy = gradient_of(pattern.gelu), *x = value(pattern.input);
  const Tensor* dx = tensor(value_bytes(pattern.input));
  gradients_[pattern.input].push_back(dx);
  const int64_t bias =
      pattern.bias ? layout_.slices[graph_.node(pattern.input).parameters[1]].offset : -1;
  emit(name_of(graph_, pattern), Phase::backward, "own sweep", {dy, x, dx},
       [=, precision = options_.precision, extent = extent(pattern.gelu),
        activation = activation(pattern), &r = resources_](cudaStream_t stream) {
         GeluGradient operands{dy->data, x->data, activation().bias, dx->data, nullptr};
         if (bias >= 0) operands.bias_gradient = r.parameters.vector_gradients + bias;
         launch_gelu_backward(precision, operands, extent, r.reduction, stream);
       });
}

void Lowering::forward_class_token(int i) {
  const Node& node = graph_.node(i);
  require_packs(i);
  const Tensor *x = value(node.inputs[0]), *y = tensor(value_bytes(i));
  values_[i] = y;
  emit(node.name, Phase::forward, "own sweep", {x, y},
       [=, precision = options_.precision, extent = token_extent(node.inputs[0]),
        token = layout_.offset(node.parameters[0]), &r = resources_](cudaStream_t stream) {
         launch_prepend_token(precision, extent, x->data, r.parameters.values + token, y->data,
                              stream);
       });
}

void Lowering::backward_class_token(int i) {
  const Node& node = graph_.node(i);
  const int input = node.inputs[0];
  const Tensor *dy = gradient_of(i), *dx = tensor(value_bytes(input));
  gradients_[input].push_back(dx);
  emit(node.name, Phase::backward, "own sweep", {dy, dx},
       [=, precision = options_.precision, extent = token_extent(input), size = element_size(),
        token = layout_.slices[node.parameters[0]].offset, &r = resources_](cudaStream_t stream) {
         launch_prepend_token_backward(precision, extent, dy->data, dx->data,
                                       r.parameters.gradient(token, size), stream);
       })
      .gradient_of = node.parameters[0];
}

void Lowering::forward_positions(int i) {
  const Node& node = graph_.node(i);
  require_packs(i);
  const Tensor *x = value(node.inputs[0]), *y = tensor(value_bytes(i));
  values_[i] = y;
  emit(node.name, Phase::forward, "own sweep", {x, y},
       [=, precision = options_.precision, extent = token_extent(i),
        positions = layout_.offset(node.parameters[0]), &r = resources_](cudaStream_t stream) {
         launch_add_positions(precision, extent, x->data, r.parameters.values + positions, y->data,
                              stream);
       });
}

void Lowering::backward_positions(int i) {
  const Node& node = graph_.node(i);
  const Tensor* dy = gradient_of(i);
  gradients_[node.inputs[0]].push_back(dy);
  emit(node.name, Phase::backward, "own sweep", {dy},
       [=, precision = options_.precision, extent = token_extent(i), size = element_size(),
        positions = layout_.slices[node.parameters[0]].offset,
        &r = resources_](cudaStream_t stream) {
         launch_positions_gradient(precision, extent, dy->data,
                                   r.parameters.gradient(positions, size), stream);
       })
      .gradient_of = node.parameters[0];
}

void Lowering::forward_select_token(int i) {
  const Node& node = graph_.node(i);
  require_packs(i);
  const Tensor *x = value(node.inputs[0]), *y = tensor(value_bytes(i));
  values_[i] = y;
  Kernel& kernel = emit(node.name, Phase::forward, "own sweep", {x, y},
                        [=, precision = options_.precision,
                         extent = token_extent(node.inputs[0])](cudaStream_t stream) {
                          launch_first_token(precision, extent, x->data, y->data, stream);
                        });
  kernel.bytes = 2.0 * static_cast<double>(y->bytes);
}

void Lowering::backward_select_token(int i) {
  const int input = graph_.node(i).inputs[0];
  const Tensor *dy = gradient_of(i), *dx = tensor(value_bytes(input));
  gradients_[input].push_back(dx);
  emit(graph_.node(i).name, Phase::backward, "own sweep", {dy, dx},
       [=, precision = options_.precision, extent = token_extent(input)](cudaStream_t stream) {
         launch_first_token_backward(precision, extent, dy->data, dx->data, stream);
       });
}

}  // namespace nearmetal::cuda
