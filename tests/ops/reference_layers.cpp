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

struct Reach {
  int64_t begin, end;
};

// Along one axis, the outputs whose tap lies inside the input.
Reach reach_of(int64_t outputs, int64_t inputs, int64_t stride, int64_t shift) {
  const int64_t begin = shift < 0 ? (-shift + stride - 1) / stride : 0;
  const int64_t end = shift < inputs ? std::min(outputs, (inputs - 1 - shift) / stride + 1) : 0;
  return {begin, std::max(begin, end)};
}

// Every pair of an output and an input value that one tap of a window joins, as runs of values that
// lie behind one another in both planes: body(first in output, first in input, length).
template <class Body>
void for_each_run(const BatchTensor& output, const BatchTensor& input, Window window,
                  int64_t tap_row, int64_t tap_column, Body body) {
  const int64_t batch = output.batch, stride = window.stride;
  const int64_t width = output.shape.width, input_width = input.shape.width;
  const int64_t down = tap_row - window.padding, right = tap_column - window.padding;
  const Reach rows = reach_of(output.shape.height, input.shape.height, stride, down);
  const Reach columns = reach_of(width, input_width, stride, right);
  const int64_t in_row = columns.end - columns.begin;
  const bool whole_rows = stride == 1 && in_row == width && width == input_width;
  const int64_t height = whole_rows ? rows.end - rows.begin : 1;  // of a run, in rows
  const int64_t pixels = stride == 1 ? in_row * height : 1;       // of a run
  for (int64_t row = rows.begin; row < rows.end; row += height) {
    for (int64_t column = columns.begin; column < columns.end; column += pixels) {
      body((row * width + column) * batch,
           ((row * stride + down) * input_width + column * stride + right) * batch, pixels * batch);
    }
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

BatchTensor convolution(const BatchTensor& x, Values weight, Shape output, Window window) {
  BatchTensor y(x.batch, output);
  parallel_for(output.channels, [&](int64_t out) {
    double* to = y.plane(out);
    for (int64_t in = 0; in < x.shape.channels; ++in) {
      const double* from = x.plane(in);
      for_each_tap(window, [&](int64_t row, int64_t column) {
        const double w = weight[weight_index(out, in, x.shape.channels, window, row, column)];
        for_each_run(y, x, window, row, column, [&](int64_t at_y, int64_t at_x, int64_t length) {
          for (int64_t i = 0; i < length; ++i) to[at_y + i] += w * from[at_x + i];
        });
      });
    }
  });
  return y;
}

BatchTensor convolution_input_gradient(const BatchTensor& dy, Values weight, Shape input,
                                       Window window) {
  BatchTensor dx(dy.batch, input);
  parallel_for(input.channels, [&](int64_t in) {
    double* to = dx.plane(in);
    for (int64_t out = 0; out < dy.shape.channels; ++out) {
      const double* from = dy.plane(out);
      for_each_tap(window, [&](int64_t row, int64_t column) {
        const double w = weight[weight_index(out, in, input.channels, window, row, column)];
        for_each_run(dy, dx, window, row, column, [&](int64_t at_y, int64_t at_x, int64_t length) {
          for (int64_t i = 0; i < length; ++i) to[at_x + i] += w * from[at_y + i];
        });
      });
    }
  });
  return dx;
}

std::vector<double> convolution_weight_gradient(const BatchTensor& x, const BatchTensor& dy,
                                                Window window) {
  const int64_t inputs = x.shape.channels;
  std::vector<double> gradient(dy.shape.channels * inputs * window.kernel * window.kernel);
  parallel_for(dy.shape.channels, [&](int64_t out) {
    const double* right = dy.plane(out);
    for (int64_t in = 0; in < inputs; ++in) {
      const double* left = x.plane(in);
      for_each_tap(window, [&](int64_t row, int64_t column) {
        double sum = 0;
        for_each_run(dy, x, window, row, column, [&](int64_t at_y, int64_t at_x, int64_t length) {
#pragma omp simd reduction(+ : sum)
          for (int64_t i = 0; i < length; ++i) sum += left[at_x + i] * right[at_y + i];
        });
        gradient[weight_index(out, in, inputs, window, row, column)] = sum;
      });
    }
  });
  return gradient;
}

Moments channel_moments(const BatchTensor& x, int64_t channel) {
  const std::span<const double> plane(x.plane(channel), x.plane_size());
  Moments moments{0, 0, static_cast<double>(plane.size())};
  for (const double value : plane) moments.mean += value / moments.count;
  for (const double value : plane) {
    moments.variance += (value - moments.mean) * (value - moments.mean) / moments.count;
  }
  return moments;
}

BatchTensor batch_norm(const BatchTensor& x, Values scale, Values bias) {
  BatchTensor y(x.batch, x.shape);
  parallel_for(x.shape.channels, [&](int64_t channel) {
    const Moments moments = channel_moments(x, channel);
    const double factor = scale[channel] / std::sqrt(moments.variance + batch_norm_epsilon);
    for (int64_t i = 0; i < x.plane_size(); ++i) {
      y.plane(channel)[i] = (x.plane(channel)[i] - moments.mean) * factor + bias[channel];
    }
  });
  return y;
}

BatchNormGradients batch_norm_gradients(const BatchTensor& x, Values scale, const BatchTensor& dy) {
  BatchNormGradients gradients{BatchTensor(x.batch, x.shape), std::vector<double>(x.shape.channels),
                               std::vector<double>(x.shape.channels)};
  parallel_for(x.shape.channels, [&](int64_t channel) {
    const Moments moments = channel_moments(x, channel);
    const double inverse_deviation = 1 / std::sqrt(moments.variance + batch_norm_epsilon);
    const auto normalised = [&](int64_t i) {
      return (x.plane(channel)[i] - moments.mean) * inverse_deviation;
    };
    const double* gradient = dy.plane(channel);
    double scale_gradient = 0, bias_gradient = 0;
    for (int64_t i = 0; i < x.plane_size(); ++i) {
      scale_gradient += gradient[i] * normalised(i);
      bias_gradient += gradient[i];
    }
    for (int64_t i = 0; i < x.plane_size(); ++i) {
      gradients.input.plane(channel)[i] =
          scale[channel] * inverse_deviation *
          (gradient[i] - (bias_gradient + normalised(i) * scale_gradient) / moments.count);
    }
    gradients.scale[channel] = scale_gradient;
    gradients.bias[channel] = bias_gradient;
  });
  return gradients;
}

BatchTensor relu(const BatchTensor& x) {
  BatchTensor y = x;
  for (double& value : y.values) value = std::max(value, 0.0);
  return y;
}

BatchTensor relu_gradient(const BatchTensor& x, const BatchTensor& dy) {
  BatchTensor dx = dy;
  for (size_t i = 0; i < dx.values.size(); ++i) {
    if (x.values[i] <= 0) dx.values[i] = 0;
  }
  return dx;
}

BatchTensor sum(const BatchTensor& left, const BatchTensor& right) {
  BatchTensor total = left;
  for (size_t i = 0; i < total.values.size(); ++i) total.values[i] += right.values[i];
  return total;
}

namespace {

// For every output of pooling: body(channel, place of the output, place of the maximum), each
// within its plane.
template <class Body>
void for_each_winner(const BatchTensor& x, const Shape& output, Window window, Body body) {
  parallel_for(output.channels, [&](int64_t channel) {
    const double* from = x.plane(channel);
    for (int64_t place = 0; place < output.height * output.width * x.batch; ++place) {
      const int64_t image = place % x.batch, pixel = place / x.batch;
      int64_t winner = -1;
      for_each_tap(window, [&](int64_t tap_row, int64_t tap_column) {
        const int64_t row = pixel / output.width * window.stride + tap_row - window.padding;
        const int64_t column = pixel % output.width * window.stride + tap_column - window.padding;
        if (row < 0 || row >= x.shape.height || column < 0 || column >= x.shape.width) return;
        const int64_t candidate = (row * x.shape.width + column) * x.batch + image;
        if (winner < 0 || from[candidate] > from[winner]) winner = candidate;
      });
      body(channel, place, winner);
    }
  });
}

}  // namespace

BatchTensor max_pool(const BatchTensor& x, Shape output, Window window) {
  BatchTensor y(x.batch, output);
  for_each_winner(x, output, window, [&](int64_t channel, int64_t place, int64_t winner) {
    y.plane(channel)[place] = x.plane(channel)[winner];
  });
  return y;
}

BatchTensor max_pool_gradient(const BatchTensor& x, const BatchTensor& dy, Window window) {
  BatchTensor dx(x.batch, x.shape);
  for_each_winner(x, dy.shape, window, [&](int64_t channel, int64_t place, int64_t winner) {
    dx.plane(channel)[winner] += dy.plane(channel)[place];
  });
  return dx;
}

BatchTensor global_average_pool(const BatchTensor& x) {
  BatchTensor y(x.batch, {x.shape.channels});
  const auto pixels = static_cast<double>(x.shape.height * x.shape.width);
  for (int64_t channel = 0; channel < x.shape.channels; ++channel) {
    for (int64_t i = 0; i < x.plane_size(); ++i) {
      y.plane(channel)[i % x.batch] += x.plane(channel)[i] / pixels;
    }
  }
  return y;
}

BatchTensor global_average_pool_gradient(const BatchTensor& dy, Shape input) {
  BatchTensor dx(dy.batch, input);
  const auto pixels = static_cast<double>(input.height * input.width);
  for (int64_t channel = 0; channel < input.channels; ++channel) {
    for (int64_t i = 0; i < dx.plane_size(); ++i) {
      dx.plane(channel)[i] = dy.plane(channel)[i % dy.batch] / pixels;
    }
  }
  return dx;
}

namespace {

// -log of an image's softmax: log(sum over k of exp(logits[k] - logits[index])), shifted by the
// maximum so that no exponential overflows.
double negative_log_softmax(const BatchTensor& logits, int64_t image, int64_t index) {
  double largest = logits.plane(0)[image], total = 0;
  for (int64_t k = 0; k < logits.shape.channels; ++k) {
    largest = std::max(largest, logits.plane(k)[image]);
  }
  for (int64_t k = 0; k < logits.shape.channels; ++k) {
    total += std::exp(logits.plane(k)[image] - largest);
  }
  return std::log(total) + largest - logits.plane(index)[image];
}

}  // namespace

double softmax_cross_entropy(const BatchTensor& logits, std::span<const int32_t> labels) {
  double total = 0;
  for (int64_t image = 0; image < logits.batch; ++image) {
    total += negative_log_softmax(logits, image, labels[image]);
  }
  return total / static_cast<double>(logits.batch);
}

BatchTensor softmax_cross_entropy_gradient(const BatchTensor& logits,
                                           std::span<const int32_t> labels) {
  BatchTensor gradient(logits.batch, logits.shape);
  for (int64_t image = 0; image < logits.batch; ++image) {
    for (int64_t k = 0; k < logits.shape.channels; ++k) {
      const double probability = std::exp(-negative_log_softmax(logits, image, k));
      const double target = k == labels[image] ? 1 : 0;
      gradient.plane(k)[image] = (probability - target) / static_cast<double>(logits.batch);
    }
  }
  return gradient;
}

}  // namespace nearmetal
