// The emitters of matrix products, of attention, and of what lies between its products.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "models/cuda/compiler/emission.h"

namespace nearmetal::cuda::emitters {

std::span<const Emitter> product_emitters();

/// `algorithm`: its name, read at the first launch; null: the one that cuBLASLt puts first.
Launch emit_linear(const FusedOp& op, const Emission& e,
                   const std::shared_ptr<const std::string>& algorithm);

}  // namespace nearmetal::cuda::emitters
