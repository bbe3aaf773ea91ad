// The emitters of our kernels for images.
#pragma once

#include <span>

#include "models/cuda/compiler/emission.h"

namespace nearmetal::cuda::emitters {

std::span<const Emitter> image_emitters();

}  // namespace nearmetal::cuda::emitters
