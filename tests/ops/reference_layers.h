// The layers of a network as plain loops over doubles: slow, and meant to be seen to be right.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/graph.h"

namespace nearmetal {

/// One value per image, channel, row and column, in this order.
struct NchwTensor {
  int64_t batch = 0;
  Shape shape;
  std::vector<double> values;

  NchwTensor() = default;
  NchwTensor(int64_t batch, Shape shape)
      : batch(batch), shape(shape), values(batch * shape.elements()) {}

  /// The rows of one channel of one image.
  double* plane(int64_t image, int64_t channel) {
    return values.data() + (image * shape.channels + channel) * shape.height * shape.width;
  }
  const double* plane(int64_t image, int64_t channel) const {
    return values.data() + (image * shape.channels + channel) * shape.height * shape.width;
  }
};

using Values = std::span<const double>;

/// Calls body(0) ... body(count - 1) on several threads.
void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

// Convolution as networks define it (a correlation); weights OIHW.
NchwTensor convolution(const NchwTensor& x, Values weight, Shape output, Window window);
NchwTensor convolution_input_gradient(const NchwTensor& dy, Values weight, Shape input,
                                      Window window);
std::vector<double> convolution_weight_gradient(const NchwTensor& x, const NchwTensor& dy,
                                                Window window);

/// Mean and biased variance of one channel over the batch.
struct Moments {
  double mean = 0;
  double variance = 0;
  double count = 0;
};
Moments channel_moments(const NchwTensor& x, int64_t channel);

/// In training mode: (x - mean) / sqrt(variance + epsilon) * scale + bias.
NchwTensor batch_norm(const NchwTensor& x, Values scale, Values bias);
struct BatchNormGradients {
  NchwTensor input;
  std::vector<double> scale, bias;
};
/// Ioffe and Szegedy, 2015, arXiv 1502.03167, section 3.
BatchNormGradients batch_norm_gradients(const NchwTensor& x, Values scale, const NchwTensor& dy);

NchwTensor relu(const NchwTensor& x);
/// 0 where x is 0.
NchwTensor relu_gradient(const NchwTensor& x, const NchwTensor& dy);

NchwTensor sum(const NchwTensor& left, const NchwTensor& right);

/// Padding never wins; of equal values the first in row order does.
NchwTensor max_pool(const NchwTensor& x, Shape output, Window window);
NchwTensor max_pool_gradient(const NchwTensor& x, const NchwTensor& dy, Window window);

NchwTensor global_average_pool(const NchwTensor& x);
NchwTensor global_average_pool_gradient(const NchwTensor& dy, Shape input);

/// Mean over the batch of -log softmax(logits)[label], and its gradient.
double softmax_cross_entropy(const NchwTensor& logits, std::span<const int32_t> labels);
NchwTensor softmax_cross_entropy_gradient(const NchwTensor& logits,
                                          std::span<const int32_t> labels);

}  // namespace nearmetal
