// The operations of convolutional networks on images.
#pragma once

#include "models/cpu/lowering.h"

namespace nearmetal::cpu {

void forward_convolution(Lowering& to, int i);
void backward_convolution(Lowering& to, int i, Tensor* dy);
void forward_norm(Lowering& to, int i);
void backward_norm(Lowering& to, int i, Tensor* dy);
/// Of the running statistics of all norms, after the forward pass of a micro-batch.
void update_statistics(Lowering& to);
void forward_add(Lowering& to, int i);
void backward_add(Lowering& to, int i, Tensor* dy);
void forward_relu(Lowering& to, int i);
void backward_relu(Lowering& to, int i);  // sums the gradients at its output itself
void forward_pool(Lowering& to, int i);
void backward_pool(Lowering& to, int i, Tensor* dy);
void forward_loss(Lowering& to, int i);  // with its gradient

}  // namespace nearmetal::cpu
