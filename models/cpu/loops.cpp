#include "models/cpu/loops.h"

#include <stdexcept>
#include <type_traits>
#include <utility>

#include "models/cpu/onednn.h"
#include "models/graph.h"
#include "models/synthetic.h"

namespace nearmetal::cpu {
namespace {

constexpr int64_t square_sum_part = 1 << 16;

// out[i] = value(i), a float, in parallel.
template <class T, class Value>
void fill_each(T* out, int64_t elements, const Value& value) {
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < elements; ++i) out[i] = from_float<T>(value(i));
}

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

void copy_values(const UpdateOperands& operands) {
  if (operands.copies == nullptr) return;
  convert(Precision::fp32, operands.values, Precision::bf16, operands.copies, operands.elements);
}

}  // namespace

void add(Precision precision, const void* left, const void* right, bool relu, void* out,
         int64_t elements) {
  with_element_type(precision, [&]<class T>() {
    const T* a = static_cast<const T*>(left);
    const T* b = static_cast<const T*>(right);
    T* y = static_cast<T*>(out);
    const auto sum = [a, b](int64_t i) { return to_float(a[i]) + to_float(b[i]); };
    if (relu) {
      fill_each(y, elements, [sum](int64_t i) { return positive_part(sum(i)); });
    } else {
      fill_each(y, elements, sum);
    }
  });
}

void relu(Precision precision, const void* x, void* y, int64_t elements) {
  with_element_type(precision, [&]<class T>() {
    const T* in = static_cast<const T*>(x);
    fill_each(static_cast<T*>(y), elements,
              [in](int64_t i) { return positive_part(to_float(in[i])); });
  });
}

void relu_backward(Precision precision, const void* y, const void* dy, const void* other, void* dx,
                   int64_t elements) {
  with_element_type(precision, [&]<class T>() {
    const T* value = static_cast<const T*>(y);
    const T* a = static_cast<const T*>(dy);
    const T* b = static_cast<const T*>(other);
    T* out = static_cast<T*>(dx);
    const auto masked = [value](int64_t i, float gradient) {
      return to_float(value[i]) > 0 ? gradient : 0.0f;
    };
    if (b == nullptr) {
      fill_each(out, elements, [=](int64_t i) { return masked(i, to_float(a[i])); });
    } else {
      fill_each(out, elements,
                [=](int64_t i) { return masked(i, to_float(a[i]) + to_float(b[i])); });
    }
  });
}

void fill_images(uint64_t data_seed, float* images, int64_t elements) {
  const uint64_t seed = image_seed(data_seed);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < elements; ++i) images[i] = normal_at(seed, static_cast<uint64_t>(i));
}

void fill_tokens(uint64_t data_seed, uint64_t step, int64_t vocabulary,
                 std::vector<int32_t>& tokens) {
  const uint64_t seed = image_seed(data_seed);
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = token_at(seed, step, i, vocabulary);
}

void softmax_loss(Precision precision, const float* logits, const int32_t* labels, int64_t images,
                  int64_t classes, float factor, float* losses, void* gradient) {
  with_element_type(precision, [&]<class T>() {
#pragma omp parallel for schedule(static)
    for (int64_t image = 0; image < images; ++image) {
      losses[image] = cross_entropy<1>(
          logits + image * classes, classes, labels[image], factor,
          gradient != nullptr ? static_cast<T*>(gradient) + image * classes : nullptr);
    }
  });
}

int64_t square_sum_parts(int64_t elements) {
  return (elements + square_sum_part - 1) / square_sum_part;
}

double square_sum(const float* values, int64_t elements, std::vector<double>& partial_sums) {
  const int64_t parts = square_sum_parts(elements);
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t end = std::min(elements, (part + 1) * square_sum_part);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = part * square_sum_part; i < end; ++i) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    partial_sums[part] = sum;
  }
  double total = 0;
  for (int64_t part = 0; part < parts; ++part) total += partial_sums[part];
  return total;
}

void mean_of_sums(const float* sums, float* gradients, int64_t count, int64_t elements) {
  const auto factor = 1 / static_cast<float>(count);
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < elements; ++i) gradients[i] = (sums[i] + gradients[i]) * factor;
}

void sgd_update(const OptimizerOptions& options, const UpdateOperands& operands) {
  const auto learning_rate = static_cast<float>(options.learning_rate);
  const auto momentum = static_cast<float>(options.momentum);
  const auto weight_decay = static_cast<float>(options.weight_decay);
  float *const values = operands.values, *const velocity = operands.momentum;
  const float* const gradients = operands.gradients;
  const float inverse_scale = operands.inverse_scale;
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < operands.elements; ++i) {
    const float value = values[i];
    const float speed =
        momentum * velocity[i] + (gradients[i] * inverse_scale + weight_decay * value);
    velocity[i] = speed;
    values[i] = value - learning_rate * speed;
  }
  copy_values(operands);
}

void adamw_update(const OptimizerOptions& options, const AdamwStep& step,
                  const UpdateOperands& operands) {
  const auto keep = static_cast<float>(1 - options.learning_rate * options.weight_decay);
  float *const values = operands.values, *const first = operands.momentum,
               *const second = operands.second_moments;
  const float* const gradients = operands.gradients;
  const float inverse_scale = operands.inverse_scale;
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < operands.elements; ++i) {
    nearmetal::adamw_update(step, keep, gradients[i] * inverse_scale, first[i], second[i],
                            values[i]);
  }
  copy_values(operands);
}

void convert(Precision from, const void* in, Precision to, void* out, int64_t elements) {
  with_stored_type(from, [&]<class From>() {
    const From* values = static_cast<const From*>(in);
    with_stored_type(to, [&]<class To>() {
      fill_each(static_cast<To*>(out), elements,
                [values](int64_t i) { return to_float(values[i]); });
    });
  });
}

void update_running_statistics(const std::vector<NormStatistics>& norms, const float* batch,
                               float* running) {
  constexpr auto take = static_cast<float>(batch_norm_momentum);
  constexpr auto keep = static_cast<float>(1 - batch_norm_momentum);
  for (const NormStatistics& norm : norms) {
    const auto n = static_cast<double>(norm.values_per_channel);
    const float unbiased = n > 1 ? static_cast<float>(n / (n - 1)) : 1.0f;
    for (int64_t i = norm.offset; i < norm.offset + norm.channels; ++i) {
      const int64_t j = i + norm.stride;
      running[i] = keep * running[i] + take * batch[i];
      running[j] = keep * running[j] + take * batch[j] * unbiased;
    }
  }
}

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
