// Operations that oneDNN has no primitive for, as loops over all threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "models/program.h"
#include "models/sixteen_bits.h"
#include "models/training_options.h"

namespace nearmetal::cpu {

/// max(value, 0), written so that a NaN passes.
inline float positive_part(float value) { return value < 0 ? 0 : value; }

/// Calls `body`, a template of the activations' type.
template <class Body>
void with_element_type(Precision precision, Body body) {
  if (precision == Precision::bf16) return body.template operator()<Bf16>();
  body.template operator()<float>();
}

/// All buffers of one of these functions have the same layout, padding included, and the type of
/// the activations (fp32 or bf16) where they are void.

/// out = left + right, below 0 set to 0 if `relu`; `out` may be `left`. NaN stays NaN.
void add(Precision precision, const void* left, const void* right, bool relu, void* out,
         int64_t elements);
void relu(Precision precision, const void* x, void* y, int64_t elements);
/// dx = dy + other where y > 0, else 0; `other` may be null, `dx` may be `dy` or `other`.
void relu_backward(Precision precision, const void* y, const void* dy, const void* other, void* dx,
                   int64_t elements);

/// Images in canonical layout [batch, channels, height, width], standard normal.
void fill_images(uint64_t data_seed, float* images, int64_t elements);

/// Ids of tokens of one step, each below `vocabulary`.
void fill_tokens(uint64_t data_seed, uint64_t step, int64_t vocabulary,
                 std::vector<int32_t>& tokens);

/// Minus the log of the softmax at `label`; its gradient (null if not wanted) times `factor`.
/// Logits lie `Stride` apart.
template <int Stride, class T>
float cross_entropy(const float* logits, int64_t count, int64_t label, float factor, T* gradient) {
  float largest = logits[0], sum = 0;
  for (int64_t k = 1; k < count; ++k) largest = std::max(largest, logits[Stride * k]);
  for (int64_t k = 0; k < count; ++k) sum += std::exp(logits[Stride * k] - largest);
  for (int64_t k = 0; gradient != nullptr && k < count; ++k) {
    const float hot = k == label ? 1.0f : 0.0f;
    gradient[Stride * k] =
        from_float<T>((std::exp(logits[Stride * k] - largest) / sum - hot) * factor);
  }
  return std::log(sum) + largest - logits[Stride * label];
}

/// Losses of each image; `gradient` (null if not wanted) = (softmax - one hot) * factor.
void softmax_loss(Precision precision, const float* logits, const int32_t* labels, int64_t images,
                  int64_t classes, float factor, float* losses, void* gradient);

/// Sum of squares in double, the same for any number of threads; not finite if one value is not.
/// `partial_sums` needs square_sum_parts(elements).
int64_t square_sum_parts(int64_t elements);
double square_sum(const float* values, int64_t elements, std::vector<double>& partial_sums);

/// gradients[i] = (sums[i] + gradients[i]) * (1 / count)
void mean_of_sums(const float* sums, float* gradients, int64_t count, int64_t elements);

/// What one update reads and writes.
struct UpdateOperands {
  float* values;
  float* momentum;        // AdamW: first moments
  float* second_moments;  // null with SGD
  const float* gradients;
  uint16_t* copies;  // take the new values as bf16; null if not wanted
  int64_t elements;
  float inverse_scale;  // of the loss
};
void sgd_update(const OptimizerOptions& options, const UpdateOperands& operands);
/// Of a part of the parameters, with the weight decay of `options`.
void adamw_update(const OptimizerOptions& options, const AdamwStep& step,
                  const UpdateOperands& operands);

/// out[i] = in[i], each in fp32, bf16 or fp16; rounded to nearest even.
void convert(Precision from, const void* in, Precision to, void* out, int64_t elements);

/// Where the statistics of one batch norm lie in a buffer: mean at `offset`, variance `stride`
/// further.
struct NormStatistics {
  int64_t offset = 0;
  int64_t stride = 0;
  int64_t channels = 0;
  int64_t values_per_channel = 0;  // of a batch
};
/// As in torchvision; `batch` holds the biased variance.
void update_running_statistics(const std::vector<NormStatistics>& norms, const float* batch,
                               float* running);

/// A tensor as [images, groups, pixels, lanes], where channel = group * lanes + lane; lanes beyond
/// the channels are padding. Covers the plain layouts (1 lane, or 1 group) and those in blocks.
struct NormExtent {
  int64_t images = 0, groups = 0, pixels = 0, lanes = 0;
  int64_t channels = 0;

  int64_t padded_channels() const { return groups * lanes; }
};
/// Throws std::invalid_argument for another layout.
NormExtent norm_extent(const dnnl::memory::desc& desc);

/// Bytes that either pass needs to add up partial sums and to hold coefficients.
int64_t norm_scratch_bytes(const NormExtent& extent);

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias, mean and biased variance of the batch;
/// `relu` takes the positive part.
struct NormForward {
  const void* x;
  const float* scale;
  const float* bias;
  bool relu;
  void* y;
  float* mean;
  float* variance;
  double* scratch;
};
void norm_forward(Precision precision, const NormExtent& extent, const NormForward& operands);

/// Ioffe and Szegedy, 2015, arXiv 1502.03167, section 3; `y` is null without ReLU. `dx` may be
/// `dy`.
struct NormBackward {
  const void* x;
  const void* y;
  const void* dy;
  const float* scale;
  const float* mean;
  const float* variance;
  void* dx;
  float* scale_gradient;
  float* bias_gradient;
  double* scratch;
};
void norm_backward(Precision precision, const NormExtent& extent, const NormBackward& operands);

}  // namespace nearmetal::cpu
