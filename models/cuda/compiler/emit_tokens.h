// The emitters of our kernels for tokens, losses and the bias of a classifier.
#pragma once

#include <span>

#include "models/cuda/compiler/emission.h"

namespace nearmetal::cuda::emitters {

std::span<const Emitter> of_tokens();

}  // namespace nearmetal::cuda::emitters
