// The operations of transformers on tokens, and linear layers, also of whole samples.
#pragma once

#include "models/cpu/lowering.h"

namespace nearmetal::cpu {

void forward_embedding(Lowering& to, int i);
void backward_embedding(Lowering& to, int i, Tensor* dy);
void forward_class_token(Lowering& to, int i);
void backward_class_token(Lowering& to, int i, Tensor* dy);
void forward_positions(Lowering& to, int i);
void backward_positions(Lowering& to, int i, Tensor* dy);
void forward_select_token(Lowering& to, int i);
void backward_select_token(Lowering& to, int i, Tensor* dy);
void forward_layer_norm(Lowering& to, int i);
void backward_layer_norm(Lowering& to, int i, Tensor* dy);
void forward_gelu(Lowering& to, int i);
void backward_gelu(Lowering& to, int i, Tensor* dy);
void forward_linear(Lowering& to, int i);
void backward_linear(Lowering& to, int i, Tensor* dy);
void forward_attention(Lowering& to, int i);
void backward_attention(Lowering& to, int i, Tensor* dy);
void forward_span_loss(Lowering& to, int i);  // with its gradient

}  // namespace nearmetal::cpu
