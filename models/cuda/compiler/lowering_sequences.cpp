// The first and last layers of a network of sequences: ids of tokens, the tables that they are
// looked up in, and the loss of a span.
#include "models/cuda/compiler/lowering_state.h"
#include "models/cuda/kernels/tokens.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {

void Lowering::draw_tokens() {
  const Node& node = graph_.node(0);
  if (options_.input != Input::device) {
    unsupported(node, "they are drawn on the device, not copied from the host");
  }
  emit(
      node.name, Phase::input, "own", {},
      [seed = image_seed(options_.data_seed), vocabulary = node.vocabulary,
       count = options_.step_images() * node.shape.tokens(), &r = resources_](cudaStream_t stream) {
        launch_draw_tokens({seed, count, r.state, r.fixed_tokens, r.use_fixed_samples, r.tokens},
                           vocabulary, stream);
      });
}

std::function<const int32_t*()> Lowering::token_ids() const {
  return [first = micro_batch_ * options_.batch_size * graph_.image().tokens(), &r = resources_] {
    return r.tokens + first;
  };
}

void Lowering::forward_embedding(int i) {
  const Node& node = graph_.node(i);
  require_packs(i);
  if (graph_.parameters()[node.parameters[0]].dims[0] > most_words) {
    unsupported(node, "it has more than " + std::to_string(most_words) + " words");
  }
  const Tensor* y = tensor(value_bytes(i));
  values_[i] = y;
  Kernel& kernel = emit(
      node.name, Phase::forward, "own sweep", {y},
      [=, precision = options_.precision, extent = token_extent(i), ids = token_ids(),
       words = layout_.offset(node.parameters[0]), positions = layout_.offset(node.parameters[1]),
       types = layout_.offset(node.parameters[2]), &r = resources_](cudaStream_t stream) {
        const float* values = r.parameters.values;
        launch_embedding(precision, extent, ids(),
                         {values + words, values + positions, values + types}, y->data, stream);
      });
  const TokenExtent extent = token_extent(i);
  kernel.bytes += 4.0 * static_cast<double>(extent.elements() + extent.sample_elements());
}

void Lowering::backward_words(int embedding, const Tensor* dy) {
  const Node& node = graph_.node(embedding);
  const int parameter = node.parameters[0];
  const TokenExtent extent = token_extent(embedding);
  const Tensor* sorted = tensor(sorted_bytes(extent));
  Kernel& kernel =
      emit(node.name, Phase::backward, "own sweep", {dy, sorted},
           [=, precision = options_.precision, ids = token_ids(), size = element_size(),
            words = graph_.parameters()[parameter].dims[0],
            offset = layout_.slices[parameter].offset, &r = resources_](cudaStream_t stream) {
             launch_words_gradient(precision, extent, ids(), words, dy->data,
                                   static_cast<uint32_t*>(sorted->data),
                                   r.parameters.gradient(offset, size), stream);
           });
  kernel.gradient_of = parameter;
  kernel.bytes += static_cast<double>(graph_.parameters()[parameter].size * element_size());
}

// Nothing reads the gradient of ids.
void Lowering::backward_embedding(int i) {
  const Node& node = graph_.node(i);
  const Tensor* dy = gradient_of(i);
  const TokenExtent extent = token_extent(i);
  const Tensor* place_sums = tensor(extent.sample_elements() * static_cast<int64_t>(sizeof(float)));
  const auto rows = [&](int table) { return graph_.parameters()[node.parameters[table]].dims[0]; };
  const auto offset = [&](int table) { return layout_.slices[node.parameters[table]].offset; };
  emit(node.name, Phase::backward, "own sweep", {dy, place_sums},
       [=, precision = options_.precision, size = element_size(), positions = rows(1),
        gradient = offset(1), &r = resources_](cudaStream_t stream) {
         launch_places_gradient(precision, extent, positions, dy->data,
                                static_cast<float*>(place_sums->data),
                                r.parameters.gradient(gradient, size), stream);
       })
      .gradient_of = node.parameters[1];
  emit(node.name, Phase::backward, "own sweep", {place_sums},
       [=, precision = options_.precision, size = element_size(), types = rows(2),
        gradient = offset(2), &r = resources_](cudaStream_t stream) {
         launch_types_gradient(precision, extent, types,
                               static_cast<const float*>(place_sums->data),
                               r.parameters.gradient(gradient, size), stream);
       })
      .gradient_of = node.parameters[2];
  backward_words(i, dy);
}

void Lowering::forward_span_loss(int i) {
  const Logits logits = logits_of(i, OpKind::token_linear);
  emit(graph_.node(i).name, Phase::forward, "own", {logits.values, logits.gradient},
       [=, precision = options_.precision, first = micro_batch_ * options_.batch_size,
        tokens = static_cast<int>(token_extent(graph_.node(i).inputs[0]).tokens),
        &r = resources_](cudaStream_t stream) {
         launch_span_loss(precision, logits.shape, tokens,
                          static_cast<const float*>(logits.values->data),
                          r.parameters.values + logits.bias, r.labels + 2 * first,
                          &r.state->loss_scale, r.losses + first,
                          logits.gradient == nullptr ? nullptr : logits.gradient->data, stream);
       });
}

}  // namespace nearmetal::cuda
