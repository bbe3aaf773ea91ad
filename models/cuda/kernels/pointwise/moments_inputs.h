// The convolutions for which there are kernels of second moments.
#pragma once

#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {

constexpr bool has_moments_kernels(int inputs) { return inputs == 64 || inputs == 128; }
inline constexpr int moments_widening = 4;  // outputs for an input

/// Calls body.operator()<T, inputs>() for a type of 16 bits.
template <class Body>
void with_inputs(Precision precision, int inputs, Body&& body) {
  with_16_bit_type(precision, [&]<class T>() {
    if (inputs == 64) return body.template operator()<T, 64>();
    body.template operator()<T, 128>();
  });
}

}  // namespace nearmetal::cuda
