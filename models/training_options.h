// What a step computes in and how it updates the parameters.
#pragma once

#include <cstdint>

#include "models/names.h"

namespace nearmetal {

/// Type of activations and of the operands of products; sums and master weights are always fp32.
enum class Precision { fp32, tf32, bf16, fp16 };

constexpr auto names_of(Precision) { return std::array{"fp32", "tf32", "bf16", "fp16"}; }

/// Bytes of one activation.
int64_t element_bytes(Precision precision);
/// In which activations lie in memory: of tf32 that is fp32.
Precision stored_type(Precision precision);

/// Stochastic gradient descent as in PyTorch: g += weight_decay * w; m = momentum * m + g;
/// w -= learning_rate * m, for every parameter.
struct SgdOptions {
  double learning_rate = 0.1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
};

/// The loss is multiplied by `initial` before the backward pass and the gradient divided by it
/// before the update, so that fp16 gradients do not vanish; other precisions take 1. An update
/// whose gradient is not finite is skipped. `dynamic`: such a step halves the scale, 2000 steps
/// without one double it.
struct LossScale {
  double initial = 1;
  bool dynamic = false;

  bool operator==(const LossScale&) const = default;
};

}  // namespace nearmetal
