#include "models/cpu/attention.h"
#include "models/cpu/lowering_state.h"

namespace nearmetal::cpu {
namespace {

constexpr const char* implementation = "onednn sgemm, own softmax";

}  // namespace

AttentionExtent Lowering::attention_extent(const Node& node) const {
  return {options_.batch_size, node.shape.tokens(), node.heads, node.shape.channels / node.heads};
}

void Lowering::forward_attention(int i) {
  const Node& node = graph_.node(i);
  require_fp32(node);
  const AttentionExtent extent = attention_extent(node);
  Tensor* x = token_value(node.inputs[0], Phase::forward);
  Tensor* y = values_[i] = tensor(token_desc(i));
  const bool keeps = !options_.forward_only;
  const int64_t matrices = keeps ? extent.matrices() : options_.threads;
  Tensor* p = workspaces_[i] = tensor(vector(matrices * extent.matrix_elements()));
  emit(node.name, Phase::forward, implementation, {x, p, y}, [=] {
    attention_forward(extent, {x->floats(), p->floats(), keeps, y->floats()});
  }).flops = flops(i);
}

void Lowering::backward_attention(int i) {
  Tensor* dy = gradient_of(i);
  if (dy == nullptr) return;
  const Node& node = graph_.node(i);
  const AttentionExtent extent = attention_extent(node);
  Tensor* x = token_value(node.inputs[0], Phase::backward);
  Tensor* p = workspaces_[i];
  Tensor* dx = tensor(token_desc(node.inputs[0]));
  Tensor* scratch = tensor(vector(options_.threads * extent.matrix_elements()));
  emit(node.name, Phase::backward, implementation, {x, p, dy, scratch, dx}, [=] {
    attention_backward(extent,
                       {x->floats(), p->floats(), dy->floats(), scratch->floats(), dx->floats()});
  }).flops = 2 * flops(i);
  add_gradient(node.inputs[0], dx);
}

}  // namespace nearmetal::cpu
