// The emitters of matrix products, of attention, and of what lies between its products.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "models/cuda/compiler/emission.h"

namespace nearmetal::cuda::emitters {

std::span<const Emitter> of_products();

/// `algorithm`: its name, read at the first launch; null: the one that cuBLASLt puts first.
Launch linear(const Bound& bound, const std::shared_ptr<const std::string>& algorithm);

}  // namespace nearmetal::cuda::emitters
