// The first and last layers of a network of sequences: the tables that tokens are looked up in, and
// the loss of a span.
#include <stdexcept>

#include "models/cpu/lowering_state.h"
#include "models/cpu/sequence_loops.h"

namespace nearmetal::cpu {

// The token ids of the micro-batch that is computed.
const int32_t* Lowering::ids_of(const StepState& state, int64_t first_sample, int64_t tokens) {
  return state.tokens.data() + (state.first_image + first_sample) * tokens;
}

void Lowering::forward_embedding(int i) {
  const Node& node = graph_.node(i);
  require_fp32(node);
  for (const int parameter : node.parameters) define_vector(parameter);
  Tensor *words = operand(node.parameters[0]), *positions = operand(node.parameters[1]),
         *types = operand(node.parameters[2]);
  Tensor* y = values_[i] = tensor(token_desc(i));
  const TokenExtent extent = token_extent(i);
  Operation& look_up =
      emit(node.name, Phase::forward, "own loop", {words, positions, types, y},
           [=, first = micro_batch_ * options_.batch_size, &state = state_] {
             embed(extent, ids_of(state, first, extent.tokens),
                   {words->floats(), positions->floats(), types->floats()}, y->floats());
           });
  // It reads only those rows of the tables that belong to the tokens.
  const int64_t read = (extent.batch + 1) * extent.sample_elements();
  look_up.bytes = static_cast<double>(y->bytes() + 4 * read);
}

void Lowering::backward_embedding(int i) {
  Tensor* dy = gradient_of(i);
  if (dy == nullptr) return;
  const Node& node = graph_.node(i);
  const auto gradient = [&](int which) { return step_.slices[node.parameters[which]].gradient; };
  const auto count = [&](int which) { return graph_.parameters()[node.parameters[which]].dims[0]; };
  const EmbeddingRows rows{count(0), count(1), count(2)};
  Tensor *words = gradient(0), *positions = gradient(1), *types = gradient(2);
  emit(node.name, Phase::backward, "own loop", {dy, words, positions, types},
       [=, extent = token_extent(i), first = micro_batch_ * options_.batch_size, &state = state_] {
         embed_backward(extent, ids_of(state, first, extent.tokens), dy->floats(), rows,
                        {words->floats(), positions->floats(), types->floats()});
       });
}

void Lowering::forward_span_loss(int i) {
  const int input = graph_.node(i).inputs[0];
  require_fp32(graph_.node(i));
  if (!graph_.is(input, OpKind::token_linear)) {
    throw std::invalid_argument("the CPU backend takes the loss of spans of a linear layer alone");
  }
  Tensor* logits = value(input);
  Tensor* gradient = nullptr;
  if (!options_.forward_only) {
    gradient = tensor(token_desc(input));
    gradients_[input].push_back(gradient);
  }
  emit(graph_.node(i).name, Phase::forward, "own loop", {logits, gradient},
       [=, extent = token_extent(input), first = micro_batch_ * options_.batch_size,
        &state = state_] {
         const int64_t sample = state.first_image + first;
         span_loss(logits->floats(), state.labels.data() + 2 * sample, extent.batch, extent.tokens,
                   state.loss_scale / static_cast<float>(extent.batch),
                   state.losses.data() + sample,
                   gradient != nullptr ? gradient->floats() : nullptr);
       });
}

}  // namespace nearmetal::cpu
