// The rule of dynamic loss scaling, one for all backends. Device code calls it, too: nvcc takes
// constexpr functions for that.
#pragma once

#include <cstdint>

namespace nearmetal {

/// After a step: a gradient that is not finite halves the scale (to 1 at least), and 2000 steps in
/// a row without one double it (to 2^24 at most). `good_steps` counts them.
constexpr void adapt_loss_scale(float& scale, int32_t& good_steps, bool finite) {
  constexpr int32_t good_steps_to_grow = 2000;
  constexpr float smallest = 1, largest = 0x1p24f;
  good_steps = finite ? good_steps + 1 : 0;
  if (!finite) scale = scale / 2 > smallest ? scale / 2 : smallest;
  if (good_steps == good_steps_to_grow) {
    scale = scale * 2 < largest ? scale * 2 : largest;
    good_steps = 0;
  }
}

}  // namespace nearmetal
