#include "tests/ops/reference_layers.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

namespace nearmetal {

void parallel_for(int64_t count, const std::function<void(int64_t)>& body) {
  const int64_t workers =
      std::min<int64_t>(count, std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::jthread> threads;
  for (int64_t i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
}

namespace {

// Every pair of an output and an input pixel that one tap of a window joins, a run of one output
// row at a time: body(first output pixel, first input pixel, length); input pixels are `stride`
// apart.
template <class Body>
void for_each_run(const Shape& output, const Shape& input, Window window, int64_t tap_row,
                  int64_t tap_column, Body body) {
  const int64_t stride = window.stride;
  const int64_t shift = tap_column - window.padding;
  const int64_t begin = shift < 0 ? (-shift + stride - 1) / stride : 0;
  if (input.width - 1 - shift < 0) return;
  const int64_t end = std::min(output.width, (input.width - 1 - shift) / stride + 1);
  if (begin >= end) return;
  for (int64_t row = 0; row < output.height; ++row) {
    const int64_t input_row = row * stride + tap_row - window.padding;
    if (input_row < 0 || input_row >= input.height) continue;
    body(row * output.width + begin, input_row * input.width + begin * stride + shift, end - begin);
  }
}

template <class Body>
void for_each_tap(Window window, Body body) {
  for (int64_t row = 0; row < window.kernel; ++row) {
    for (int64_t column = 0; column < window.kernel; ++column) body(row, column);
  }
}

// Index of an OIHW weight.
int64_t weight_index(int64_t output, int64_t input, int64_t inputs, Window window, int64_t row,
                     int64_t column) {
  return ((output * inputs + input) * window.kernel + row) * window.kernel + column;
}

}  // namespace

NchwTensor convolution(const NchwTensor& x, Values weight, Shape output, Window window) {
  NchwTensor y(x.batch, output);
  parallel_for(x.batch * output.channels, [&](int64_t task) {
    const int64_t image = task / output.channels, out = task % output.channels;
    double* to = y.plane(image, out);
    for (int64_t in = 0; in < x.shape.channels; ++in) {
      const double* from = x.plane(image, in);
      for_each_tap(window, [&](int64_t row, int64_t column) {
        const double w = weight[weight_index(out, in, x.shape.channels, window, row, column)];
        for_each_run(output, x.shape, window, row, column,
                     [&](int64_t first, int64_t input_first, int64_t length) {
                       for (int64_t i = 0; i < length; ++i) {
                         to[first + i] += w * from[input_first + i * window.stride];
                       }
                     });
      });
    }
  });
  return y;
}

NchwTensor convolution_input_gradient(const NchwTensor& dy, Values weight, Shape input,
                                      Window window) {
  NchwTensor dx(dy.batch, input);
  parallel_for(dy.batch * input.channels, [&](int64_t task) {
    const int64_t image = task / input.channels, in = task % input.channels;
    double* to = dx.plane(image, in);
    for (int64_t out = 0; out < dy.shape.channels; ++out) {
      const double* from = dy.plane(image, out);
      for_each_tap(window, [&](int64_t row, int64_t column) {
        const double w = weight[weight_index(out, in, input.channels, window, row, column)];
        for_each_run(dy.shape, input, window, row, column,
                     [&](int64_t first, int64_t input_first, int64_t length) {
                       for (int64_t i = 0; i < length; ++i) {
                         to[input_first + i * window.stride] += w * from[first + i];
                       }
                     });
      });
    }
  });
  return dx;
}

std::vector<double> convolution_weight_gradient(const NchwTensor& x, const NchwTensor& dy,
                                                Window window) {
  const int64_t inputs = x.shape.channels;
  std::vector<double> gradient(dy.shape.channels * inputs * window.kernel * window.kernel);
  parallel_for(dy.shape.channels, [&](int64_t out) {
    for (int64_t in = 0; in < inputs; ++in) {
      for_each_tap(window, [&](int64_t row, int64_t column) {
        double sum = 0;
        for (int64_t image = 0; image < x.batch; ++image) {
          const double* left = x.plane(image, in);
          const double* right = dy.plane(image, out);
          for_each_run(dy.shape, x.shape, window, row, column,
                       [&](int64_t first, int64_t input_first, int64_t length) {
#pragma omp simd reduction(+ : sum)
                         for (int64_t i = 0; i < length; ++i) {
                           sum += left[input_first + i * window.stride] * right[first + i];
                         }
                       });
        }
        gradient[weight_index(out, in, inputs, window, row, column)] = sum;
      });
    }
  });
  return gradient;
}

Moments channel_moments(const NchwTensor& x, int64_t channel) {
  const int64_t pixels = x.shape.height * x.shape.width;
  Moments moments{0, 0, static_cast<double>(x.batch * pixels)};
  for (int64_t image = 0; image < x.batch; ++image) {
    for (int64_t i = 0; i < pixels; ++i) moments.mean += x.plane(image, channel)[i];
  }
  moments.mean /= moments.count;
  for (int64_t image = 0; image < x.batch; ++image) {
    for (int64_t i = 0; i < pixels; ++i) {
      const double difference = x.plane(image, channel)[i] - moments.mean;
      moments.variance += difference * difference;
    }
  }
  moments.variance /= moments.count;
  return moments;
}

NchwTensor batch_norm(const NchwTensor& x, Values scale, Values bias) {
  NchwTensor y(x.batch, x.shape);
  parallel_for(x.shape.channels, [&](int64_t channel) {
    const Moments moments = channel_moments(x, channel);
    const double factor = scale[channel] / std::sqrt(moments.variance + batch_norm_epsilon);
    for (int64_t image = 0; image < x.batch; ++image) {
      for (int64_t i = 0; i < x.shape.height * x.shape.width; ++i) {
        y.plane(image, channel)[i] =
            (x.plane(image, channel)[i] - moments.mean) * factor + bias[channel];
      }
    }
  });
  return y;
}

BatchNormGradients batch_norm_gradients(const NchwTensor& x, Values scale, const NchwTensor& dy) {
  BatchNormGradients gradients{NchwTensor(x.batch, x.shape), std::vector<double>(x.shape.channels),
                               std::vector<double>(x.shape.channels)};
  parallel_for(x.shape.channels, [&](int64_t channel) {
    const Moments moments = channel_moments(x, channel);
    const double inverse_deviation = 1 / std::sqrt(moments.variance + batch_norm_epsilon);
    const auto for_each_pixel = [&](auto body) {
      for (int64_t image = 0; image < x.batch; ++image) {
        for (int64_t i = 0; i < x.shape.height * x.shape.width; ++i) {
          const double normalised = (x.plane(image, channel)[i] - moments.mean) * inverse_deviation;
          body(normalised, dy.plane(image, channel)[i], gradients.input.plane(image, channel)[i]);
        }
      }
    };
    double scale_gradient = 0, bias_gradient = 0;
    for_each_pixel([&](double normalised, double gradient, double&) {
      scale_gradient += gradient * normalised;
      bias_gradient += gradient;
    });
    for_each_pixel([&](double normalised, double gradient, double& dx) {
      dx = scale[channel] * inverse_deviation *
           (gradient - (bias_gradient + normalised * scale_gradient) / moments.count);
    });
    gradients.scale[channel] = scale_gradient;
    gradients.bias[channel] = bias_gradient;
  });
  return gradients;
}

NchwTensor relu(const NchwTensor& x) {
  NchwTensor y = x;
  for (double& value : y.values) value = std::max(value, 0.0);
  return y;
}

NchwTensor relu_gradient(const NchwTensor& x, const NchwTensor& dy) {
  NchwTensor dx = dy;
  for (size_t i = 0; i < dx.values.size(); ++i) {
    if (x.values[i] <= 0) dx.values[i] = 0;
  }
  return dx;
}

NchwTensor sum(const NchwTensor& left, const NchwTensor& right) {
  NchwTensor total = left;
  for (size_t i = 0; i < total.values.size(); ++i) total.values[i] += right.values[i];
  return total;
}

namespace {

// For every output of pooling: body(image, channel, output pixel, input pixel of the maximum).
template <class Body>
void for_each_winner(const NchwTensor& x, const Shape& output, Window window, Body body) {
  parallel_for(x.batch * output.channels, [&](int64_t task) {
    const int64_t image = task / output.channels, channel = task % output.channels;
    const double* from = x.plane(image, channel);
    for (int64_t pixel = 0; pixel < output.height * output.width; ++pixel) {
      int64_t winner = -1;
      for_each_tap(window, [&](int64_t tap_row, int64_t tap_column) {
        const int64_t row = pixel / output.width * window.stride + tap_row - window.padding;
        const int64_t column = pixel % output.width * window.stride + tap_column - window.padding;
        if (row < 0 || row >= x.shape.height || column < 0 || column >= x.shape.width) return;
        const int64_t candidate = row * x.shape.width + column;
        if (winner < 0 || from[candidate] > from[winner]) winner = candidate;
      });
      body(image, channel, pixel, winner);
    }
  });
}

}  // namespace

NchwTensor max_pool(const NchwTensor& x, Shape output, Window window) {
  NchwTensor y(x.batch, output);
  for_each_winner(x, output, window,
                  [&](int64_t image, int64_t channel, int64_t pixel, int64_t winner) {
                    y.plane(image, channel)[pixel] = x.plane(image, channel)[winner];
                  });
  return y;
}

NchwTensor max_pool_gradient(const NchwTensor& x, const NchwTensor& dy, Window window) {
  NchwTensor dx(x.batch, x.shape);
  for_each_winner(x, dy.shape, window,
                  [&](int64_t image, int64_t channel, int64_t pixel, int64_t winner) {
                    dx.plane(image, channel)[winner] += dy.plane(image, channel)[pixel];
                  });
  return dx;
}

NchwTensor global_average_pool(const NchwTensor& x) {
  NchwTensor y(x.batch, {x.shape.channels});
  const int64_t pixels = x.shape.height * x.shape.width;
  for (size_t i = 0; i < x.values.size(); ++i) {
    y.values[i / pixels] += x.values[i] / static_cast<double>(pixels);
  }
  return y;
}

NchwTensor global_average_pool_gradient(const NchwTensor& dy, Shape input) {
  NchwTensor dx(dy.batch, input);
  const int64_t pixels = input.height * input.width;
  for (size_t i = 0; i < dx.values.size(); ++i) {
    dx.values[i] = dy.values[i / pixels] / static_cast<double>(pixels);
  }
  return dx;
}

namespace {

// -log of the softmax: log(sum over k of exp(logits[k] - logits[index])), shifted by the maximum.
double negative_log_softmax(const double* logits, int64_t classes, int64_t index) {
  const double largest = *std::max_element(logits, logits + classes);
  double total = 0;
  for (int64_t k = 0; k < classes; ++k) total += std::exp(logits[k] - largest);
  return std::log(total) + largest - logits[index];
}

}  // namespace

double softmax_cross_entropy(const NchwTensor& logits, std::span<const int32_t> labels) {
  double total = 0;
  for (int64_t image = 0; image < logits.batch; ++image) {
    total += negative_log_softmax(logits.plane(image, 0), logits.shape.channels, labels[image]);
  }
  return total / static_cast<double>(logits.batch);
}

NchwTensor softmax_cross_entropy_gradient(const NchwTensor& logits,
                                          std::span<const int32_t> labels) {
  NchwTensor gradient(logits.batch, logits.shape);
  const int64_t classes = logits.shape.channels;
  for (int64_t image = 0; image < logits.batch; ++image) {
    for (int64_t k = 0; k < classes; ++k) {
      const double probability =
          std::exp(-negative_log_softmax(logits.plane(image, 0), classes, k));
      const double target = k == labels[image] ? 1 : 0;
      gradient.plane(image, k)[0] = (probability - target) / static_cast<double>(logits.batch);
    }
  }
  return gradient;
}

}  // namespace nearmetal
