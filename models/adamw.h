// AdamW (Loshchilov and Hutter, 2017, arXiv 1711.05101) as in torch.optim.AdamW, for host and
// device. Matrices decay, vectors (biases and norms) do not, as in BERT's own training.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/host_device.h"

namespace nearmetal {

inline constexpr double adamw_beta1 = 0.9;
inline constexpr double adamw_beta2 = 0.999;
inline constexpr double adamw_epsilon = 1e-8;

/// The factors of an update that depend on its number, which counts it and those before it that
/// were not skipped.
struct AdamwStep {
  float rate = 0;          // learning rate / (1 - beta1^updates)
  float inverse_root = 0;  // 1 / sqrt(1 - beta2^updates)
};

NM_HOST_DEVICE inline AdamwStep adamw_step(double learning_rate, int64_t updates) {
  const auto count = static_cast<double>(updates);
  return {static_cast<float>(learning_rate / (1 - pow(adamw_beta1, count))),
          static_cast<float>(1 / sqrt(1 - pow(adamw_beta2, count)))};
}

/// Updates one parameter w and its moments. `keep` is 1 - learning rate * weight decay.
NM_HOST_DEVICE inline void adamw_update(const AdamwStep& step, float keep, float gradient,
                                        float& first_moment, float& second_moment, float& w) {
  constexpr auto beta1 = static_cast<float>(adamw_beta1), beta2 = static_cast<float>(adamw_beta2);
  constexpr auto take1 = static_cast<float>(1 - adamw_beta1);
  constexpr auto take2 = static_cast<float>(1 - adamw_beta2);
  constexpr auto epsilon = static_cast<float>(adamw_epsilon);
  first_moment = beta1 * first_moment + take1 * gradient;
  second_moment = beta2 * second_moment + take2 * gradient * gradient;
  const float divisor = sqrtf(second_moment) * step.inverse_root + epsilon;
  w = keep * w - step.rate * first_moment / divisor;
}

}  // namespace nearmetal
