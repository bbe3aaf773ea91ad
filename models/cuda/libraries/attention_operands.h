// The plain types of attention, which kernels that check it take, too.
#pragma once

#include <cstdint>

#include "models/cuda/kernels/attention/attention.h"

namespace nearmetal::cuda {

enum class AttentionOp { forward, backward };

/// Device addresses of one execution, of which forward takes those of AttentionForward alone, with
/// log_sums, and backward those of AttentionBackward.
struct AttentionOperands {
  const void* packed = nullptr;
  void* y = nullptr;
  float* log_sums = nullptr;
  const void* dy = nullptr;
  float* dots = nullptr;
  void* packed_gradient = nullptr;
  const int32_t* token_counts = nullptr;  // [batch], where masks_tokens()
};

}  // namespace nearmetal::cuda
