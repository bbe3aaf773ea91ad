// The layers of a network as plain loops over doubles: slow, and meant to be seen to be right.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/graph.h"

namespace nearmetal {

/// One value per channel, row, column and image, in this order: images innermost make the plain
/// loops long even where a plane has one pixel.
struct BatchTensor {
  int64_t batch = 0;
  Shape shape;
  std::vector<double> values;

  BatchTensor() = default;
  BatchTensor(int64_t batch, Shape shape)
      : batch(batch), shape(shape), values(batch * shape.elements()) {}

  int64_t plane_size() const { return shape.height * shape.width * batch; }
  /// All values of one channel.
  double* plane(int64_t channel) { return values.data() + channel * plane_size(); }
  const double* plane(int64_t channel) const { return values.data() + channel * plane_size(); }
};

using Values = std::span<const double>;

/// Calls body(0) ... body(count - 1) on several threads.
void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

// Convolution as networks define it (a correlation); weights OIHW.
BatchTensor convolution(const BatchTensor& x, Values weight, Shape output, Window window);
BatchTensor convolution_input_gradient(const BatchTensor& dy, Values weight, Shape input,
                                       Window window);
std::vector<double> convolution_weight_gradient(const BatchTensor& x, const BatchTensor& dy,
                                                Window window);

/// Mean and biased variance of one channel over the batch.
struct Moments {
  double mean = 0;
  double variance = 0;
  double count = 0;
};
Moments channel_moments(const BatchTensor& x, int64_t channel);

/// In training mode: (x - mean) / sqrt(variance + epsilon) * scale + bias.
BatchTensor batch_norm(const BatchTensor& x, Values scale, Values bias);
struct BatchNormGradients {
  BatchTensor input;
  std::vector<double> scale, bias;
};
/// Ioffe and Szegedy, 2015, arXiv 1502.03167, section 3.
BatchNormGradients batch_norm_gradients(const BatchTensor& x, Values scale, const BatchTensor& dy);

BatchTensor relu(const BatchTensor& x);
/// 0 where x is 0.
BatchTensor relu_gradient(const BatchTensor& x, const BatchTensor& dy);

BatchTensor sum(const BatchTensor& left, const BatchTensor& right);

/// Padding never wins; of equal values the first in row order does.
BatchTensor max_pool(const BatchTensor& x, Shape output, Window window);
BatchTensor max_pool_gradient(const BatchTensor& x, const BatchTensor& dy, Window window);

BatchTensor global_average_pool(const BatchTensor& x);
BatchTensor global_average_pool_gradient(const BatchTensor& dy, Shape input);

/// Mean over the batch of -log softmax(logits)[label], and its gradient.
double softmax_cross_entropy(const BatchTensor& logits, std::span<const int32_t> labels);
BatchTensor softmax_cross_entropy_gradient(const BatchTensor& logits,
                                           std::span<const int32_t> labels);

}  // namespace nearmetal
