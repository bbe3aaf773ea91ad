// The precision of a step and the way in which it updates the parameters.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "models/host_device.h"

namespace nearmetal {

/// Type of activations and of the operands of products; sums and master weights are always fp32.
enum class Precision { fp32, tf32, bf16, fp16 };

constexpr auto names_of(Precision) { return std::array{"fp32", "tf32", "bf16", "fp16"}; }

/// Bytes of one activation.
constexpr int64_t element_bytes(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16 ? 2 : 4;
}
/// The type in which activations lie in memory: fp32 for tf32.
constexpr Precision stored_type(Precision precision) {
  return precision == Precision::tf32 ? Precision::fp32 : precision;
}

/// sgd: stochastic gradient descent as in PyTorch: g += weight_decay * w; m = momentum * m + g;
/// w -= learning_rate * m, for every parameter. adamw: as in torch.optim.AdamW (Loshchilov
/// and Hutter, 2017, arXiv 1711.05101); matrices decay, vectors (biases and norms) do not, as in
/// BERT's own training.
enum class Optimizer { sgd, adamw };

constexpr auto names_of(Optimizer) { return std::array{"sgd", "adamw"}; }

/// The use of the gradient of one of several micro-batches: it begins their sum, is added to it, or
/// together with the sum of those before it becomes the mean.
enum class MicroBatch { first, middle, last };
constexpr auto names_of(MicroBatch) { return std::array{"first", "middle", "last"}; }

struct OptimizerOptions {
  double learning_rate = 0.1;
  double momentum = 0.9;  // of SGD
  double weight_decay = 1e-4;
  Optimizer kind = Optimizer::sgd;
};

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

/// The loss is multiplied by `initial` before the backward pass and the gradient divided by it
/// before the update, so that fp16 gradients do not vanish; other precisions take 1. An update
/// whose gradient is not finite is skipped. `dynamic`: such a step halves the scale, 2000 steps
/// without one double it.
struct LossScale {
  double initial = 1;
  bool dynamic = false;

  bool operator==(const LossScale&) const = default;
};

/// The rule of dynamic loss scaling, which device code calls, too: nvcc takes constexpr functions
/// for that. After a step a gradient that is not finite halves the scale (to 1 at least),
/// and 2000 steps in a row without one double it (to 2^24 at most). `good_steps` counts them.
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

/// Where the images of a step come from: they stay on the device, or every step copies them from
/// host memory, which a GPU can read by itself (pinned) or not (pageable).
enum class Input { device, pinned, pageable };

constexpr auto names_of(Input) { return std::array{"device", "host", "pageable"}; }

/// The kernels that may serve: whatever is fastest, ours among them, or on a GPU those of NVIDIA's
/// libraries alone wherever they have the operation.
enum class Kernels { fastest, cudnn };

constexpr auto names_of(Kernels) { return std::array{"fastest", "cudnn"}; }

}  // namespace nearmetal
