// The ops of cuDNN's own layers, where none of our kernels may serve (Kernels::cudnn). cuDNN has no
// gradient of a bias in fp32 of activations in 16 bits, no cross entropy, no optimizer, and none
// that sets the padding of a gradient to 0: those are ours. So are all sweeps over tokens: layer
// norm, GELU, softmax and what joins tokens.
#pragma once

#include "models/cuda/compiler/planner.h"

namespace nearmetal::cuda {

/// Whether they take the node.
bool forward_by_cudnn(Planner& p, int node);
bool backward_by_cudnn(Planner& p, int node);
void forward_cudnn_activation(Planner& p, const ActivationPattern& pattern);
void backward_cudnn_activation(Planner& p, const ActivationPattern& pattern);

}  // namespace nearmetal::cuda
