#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "models/cpu/loops.h"
#include "models/cpu/onednn.h"
#include "models/graph.h"

namespace nearmetal::cpu {
namespace {

constexpr int64_t pixels_in_fp32 = 64;  // so many are added in fp32 before a sum goes on in fp64

// Calls body with the number of lanes as a constant where it is common; 0 stands for any.
template <class Body>
void with_lanes(int64_t lanes, Body body) {
  if (lanes == 8) return body(std::integral_constant<int, 8>());
  if (lanes == 16) return body(std::integral_constant<int, 16>());
  body(std::integral_constant<int, 0>());
}

// Sums two terms over the pixels of one plane by lane; terms(i, lane, a, b) sets those of value i.
template <int Lanes, class Terms>
void add_plane(int64_t pixels, int64_t lanes, double* first, double* second, Terms terms) {
  std::fill_n(first, lanes, 0.0);
  std::fill_n(second, lanes, 0.0);
  if constexpr (Lanes > 0) {
    for (int64_t begin = 0; begin < pixels; begin += pixels_in_fp32) {
      const int64_t end = std::min(pixels, begin + pixels_in_fp32);
      float a[Lanes] = {}, b[Lanes] = {};
      for (int64_t pixel = begin; pixel < end; ++pixel) {
#pragma omp simd
        for (int lane = 0; lane < Lanes; ++lane) {
          float one = 0, other = 0;
          terms(pixel * Lanes + lane, lane, one, other);
          a[lane] += one;
          b[lane] += other;
        }
      }
      for (int lane = 0; lane < Lanes; ++lane) {
        first[lane] += static_cast<double>(a[lane]);
        second[lane] += static_cast<double>(b[lane]);
      }
    }
  } else if (lanes == 1) {
    double a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      float one = 0, other = 0;
      terms(pixel, 0, one, other);
      a += static_cast<double>(one);
      b += static_cast<double>(other);
    }
    *first = a;
    *second = b;
  } else {
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
#pragma omp simd
      for (int64_t lane = 0; lane < lanes; ++lane) {
        float one = 0, other = 0;
        terms(pixel * lanes + lane, lane, one, other);
        first[lane] += static_cast<double>(one);
        second[lane] += static_cast<double>(other);
      }
    }
  }
}

// Calls body(i, lane) for every value of one plane.
template <int Lanes, class Body>
void for_each_value(int64_t pixels, int64_t lanes, Body body) {
  if (Lanes == 0 && lanes == 1) {
#pragma omp simd
    for (int64_t pixel = 0; pixel < pixels; ++pixel) body(pixel, int64_t{0});
    return;
  }
  const int64_t width = Lanes > 0 ? Lanes : lanes;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
#pragma omp simd
    for (int64_t lane = 0; lane < width; ++lane) body(pixel * width + lane, lane);
  }
}

// Scratch: two partial sums of each image and channel, then three coefficients of each channel.
struct Scratch {
  double* first;
  double* second;
  float* coefficients[3];

  Scratch(const NormExtent& extent, double* memory) : first(memory) {
    const int64_t channels = extent.padded_channels();
    second = first + extent.images * channels;
    float* next = reinterpret_cast<float*>(second + extent.images * channels);
    for (float*& coefficient : coefficients) {
      coefficient = next;
      next += channels;
    }
  }
};

double sum_of_images(const NormExtent& extent, const double* partial, int64_t channel) {
  double sum = 0;
  for (int64_t image = 0; image < extent.images; ++image) {
    sum += partial[image * extent.padded_channels() + channel];
  }
  return sum;
}

// Calls body(first value, first channel, first partial sum) for every plane, on all threads.
template <class Body>
void for_each_plane(const NormExtent& extent, Body body) {
  const int64_t planes = extent.images * extent.groups;
#pragma omp parallel for schedule(static)
  for (int64_t plane = 0; plane < planes; ++plane) {
    body(plane * extent.pixels * extent.lanes, plane % extent.groups * extent.lanes,
         plane * extent.lanes);
  }
}

template <class T, int Lanes>
void forward(const NormExtent& extent, const NormForward& operands) {
  const Scratch scratch(extent, operands.scratch);
  const int64_t pixels = extent.pixels, lanes = extent.lanes;
  for_each_plane(extent, [&](int64_t value, int64_t, int64_t partial) {
    const T* x = static_cast<const T*>(operands.x) + value;
    add_plane<Lanes>(pixels, lanes, scratch.first + partial, scratch.second + partial,
                     [=](int64_t i, int64_t, float& sum, float& square) {
                       sum = to_float(x[i]);
                       square = sum * sum;
                     });
  });
  const auto [factors, means, biases] = scratch.coefficients;
  const auto count = static_cast<double>(extent.images * extent.pixels);
  for (int64_t c = 0; c < extent.padded_channels(); ++c) {
    factors[c] = means[c] = biases[c] = 0;
    if (c >= extent.channels) continue;
    const double mean = sum_of_images(extent, scratch.first, c) / count;
    // Written so that a NaN passes.
    const double difference = sum_of_images(extent, scratch.second, c) / count - mean * mean;
    const double variance = difference < 0 ? 0 : difference;
    operands.mean[c] = static_cast<float>(mean);
    operands.variance[c] = static_cast<float>(variance);
    factors[c] = static_cast<float>(operands.scale[c] / std::sqrt(variance + batch_norm_epsilon));
    means[c] = operands.mean[c];
    biases[c] = operands.bias[c];
  }
  for_each_plane(extent, [&, factors = factors, means = means, biases = biases](
                             int64_t value, int64_t channel, int64_t) {
    const T* x = static_cast<const T*>(operands.x) + value;
    T* y = static_cast<T*>(operands.y) + value;
    const float *a = factors + channel, *m = means + channel, *b = biases + channel;
    // The mean goes first: it may be large beside the result.
    const auto normalised = [=](int64_t i, int64_t lane) {
      return (to_float(x[i]) - m[lane]) * a[lane] + b[lane];
    };
    if (operands.relu) {
      for_each_value<Lanes>(pixels, lanes, [=](int64_t i, int64_t lane) {
        y[i] = from_float<T>(positive_part(normalised(i, lane)));
      });
    } else {
      for_each_value<Lanes>(pixels, lanes, [=](int64_t i, int64_t lane) {
        y[i] = from_float<T>(normalised(i, lane));
      });
    }
  });
}

template <class T, int Lanes, bool Relu>
void backward(const NormExtent& extent, const NormBackward& operands) {
  const Scratch scratch(extent, operands.scratch);
  const int64_t pixels = extent.pixels, lanes = extent.lanes;
  const auto [means, slopes, terms] = scratch.coefficients;
  for (int64_t c = 0; c < extent.padded_channels(); ++c) {
    means[c] = c < extent.channels ? operands.mean[c] : 0;
  }
  // The gradient behind the ReLU.
  const auto gradient = [](const T* y, const T* dy, int64_t i) {
    const float value = to_float(dy[i]);
    if constexpr (Relu) return to_float(y[i]) > 0 ? value : 0.0f;
    return value;
  };
  for_each_plane(extent, [&, means = means](int64_t value, int64_t channel, int64_t partial) {
    const T* x = static_cast<const T*>(operands.x) + value;
    const T* y = Relu ? static_cast<const T*>(operands.y) + value : nullptr;
    const T* dy = static_cast<const T*>(operands.dy) + value;
    const float* mean = means + channel;
    add_plane<Lanes>(pixels, lanes, scratch.first + partial, scratch.second + partial,
                     [=](int64_t i, int64_t lane, float& sum, float& product) {
                       sum = gradient(y, dy, i);
                       product = sum * (to_float(x[i]) - mean[lane]);
                     });
  });
  // dx = factor * dy + slope * x + term
  const auto count = static_cast<double>(extent.images * extent.pixels);
  float* factors = means;
  for (int64_t c = 0; c < extent.padded_channels(); ++c) {
    factors[c] = slopes[c] = terms[c] = 0;
    if (c >= extent.channels) continue;
    const double inverse = 1 / std::sqrt(operands.variance[c] + batch_norm_epsilon);
    const double sum = sum_of_images(extent, scratch.first, c);
    const double scale_gradient = sum_of_images(extent, scratch.second, c) * inverse;
    operands.bias_gradient[c] = static_cast<float>(sum);
    operands.scale_gradient[c] = static_cast<float>(scale_gradient);
    const double factor = operands.scale[c] * inverse;
    const double slope = -factor * inverse * scale_gradient / count;
    factors[c] = static_cast<float>(factor);
    slopes[c] = static_cast<float>(slope);
    terms[c] = static_cast<float>(-factor * sum / count - slope * operands.mean[c]);
  }
  for_each_plane(extent, [&, factors, slopes = slopes, terms = terms](int64_t value,
                                                                      int64_t channel, int64_t) {
    const T* x = static_cast<const T*>(operands.x) + value;
    const T* y = Relu ? static_cast<const T*>(operands.y) + value : nullptr;
    const T* dy = static_cast<const T*>(operands.dy) + value;
    T* dx = static_cast<T*>(operands.dx) + value;
    const float *a = factors + channel, *b = slopes + channel, *c = terms + channel;
    for_each_value<Lanes>(pixels, lanes, [=](int64_t i, int64_t lane) {
      dx[i] = from_float<T>(gradient(y, dy, i) * a[lane] + (to_float(x[i]) * b[lane] + c[lane]));
    });
  });
}

}  // namespace

NormExtent norm_extent(const dnnl::memory::desc& desc) {
  using enum dnnl::memory::format_tag;
  const dnnl::memory::dims dims = dims_of(desc);
  const int64_t channels = dims[1];
  for (const auto& [tag, lanes] :
       {std::pair{nChw16c, int64_t{16}}, {nChw8c, 8}, {nChw4c, 4}, {nhwc, channels}, {nchw, 1}}) {
    if (desc != dnnl::memory::desc(dims, type_of(desc), tag)) continue;
    return {dims[0], (channels + lanes - 1) / lanes, dims[2] * dims[3], lanes, channels};
  }
  throw std::invalid_argument("the CPU backend has no batch norm for this layout");
}

int64_t norm_scratch_bytes(const NormExtent& extent) {
  return extent.padded_channels() * (extent.images * 2 * 8 + 3 * 4);
}

void norm_forward(Precision precision, const NormExtent& extent, const NormForward& operands) {
  with_element_type(precision, [&]<class T>() {
    with_lanes(extent.lanes, [&](auto lanes) { forward<T, lanes()>(extent, operands); });
  });
}

void norm_backward(Precision precision, const NormExtent& extent, const NormBackward& operands) {
  with_element_type(precision, [&]<class T>() {
    with_lanes(extent.lanes, [&](auto lanes) {
      if (operands.y != nullptr) {
        backward<T, lanes(), true>(extent, operands);
      } else {
        backward<T, lanes(), false>(extent, operands);
      }
    });
  });
}

}  // namespace nearmetal::cpu
