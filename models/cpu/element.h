// The two types of activations on a CPU, for loops that are written once for both.
#pragma once

#include "models/program.h"
#include "models/sixteen_bits.h"

namespace nearmetal::cpu {

/// max(value, 0), written so that a NaN passes.
inline float positive_part(float value) { return value < 0 ? 0 : value; }

/// Calls `body`, a template of the activations' type.
template <class Body>
void with_element_type(Precision precision, Body body) {
  if (precision == Precision::bf16) {
    body.template operator()<Bf16>();
  } else {
    body.template operator()<float>();
  }
}

}  // namespace nearmetal::cpu
