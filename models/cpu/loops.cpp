#include "models/cpu/loops.h"

#include <algorithm>
#include <cmath>

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
      const float* row = logits + image * classes;
      float largest = row[0];
      for (int64_t k = 1; k < classes; ++k) largest = std::max(largest, row[k]);
      float sum = 0;
      for (int64_t k = 0; k < classes; ++k) sum += std::exp(row[k] - largest);
      const int32_t label = labels[image];
      losses[image] = std::log(sum) + largest - row[label];
      if (gradient == nullptr) continue;
      T* out = static_cast<T*>(gradient) + image * classes;
      for (int64_t k = 0; k < classes; ++k) {
        const float hot = k == label ? 1.0f : 0.0f;
        out[k] = from_float<T>((std::exp(row[k] - largest) / sum - hot) * factor);
      }
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

void sgd_update(const OptimizerOptions& options, const SgdOperands& operands) {
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
  if (operands.copies != nullptr) copy_as_bf16(values, operands.copies, operands.elements);
}

void adamw_update(const OptimizerOptions& options, const AdamwStep& step,
                  const AdamwOperands& operands) {
  const auto keep = static_cast<float>(1 - options.learning_rate * options.weight_decay);
  float *const values = operands.values, *const first = operands.first_moments,
               *const second = operands.second_moments;
  const float* const gradients = operands.gradients;
  const float inverse_scale = operands.inverse_scale;
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < operands.elements; ++i) {
    nearmetal::adamw_update(step, keep, gradients[i] * inverse_scale, first[i], second[i],
                            values[i]);
  }
  if (operands.copies != nullptr) copy_as_bf16(values, operands.copies, operands.elements);
}

void copy_as_bf16(const float* values, uint16_t* copies, int64_t elements) {
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < elements; ++i) copies[i] = from_float<Bf16>(values[i]).bits;
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

}  // namespace nearmetal::cpu
