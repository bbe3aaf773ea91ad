// The emitters of our kernels for images.
#pragma once

#include <span>

#include "models/cuda/compiler/emission.h"

namespace nearmetal::cuda::emitters {

std::span<const Emitter> of_images();

}  // namespace nearmetal::cuda::emitters
