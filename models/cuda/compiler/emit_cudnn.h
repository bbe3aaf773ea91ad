// The emitters of cuDNN's own layers (Kernels::cudnn).
#pragma once

#include <span>

#include "models/cuda/compiler/emission.h"

namespace nearmetal::cuda::emitters {

std::span<const Emitter> of_cudnn();

}  // namespace nearmetal::cuda::emitters
