#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {
namespace {

template <class T>
__global__ void average_pool_kernel(const T* x, T* y, int64_t packs, int pixels, int channels) {
  constexpr int width = pack_width<T>;
  const int64_t index = this_piece();
  if (index >= packs) return;
  const int packs_per_row = channels / width;
  const T* first = x + index / packs_per_row * pixels * channels + index % packs_per_row * width;
  float sums[width] = {};
  for (int pixel = 0; pixel < pixels; ++pixel) {
    const Pack<T> pack = load_pack(first + int64_t{pixel} * channels);
#pragma unroll
    for (int i = 0; i < width; ++i) sums[i] += to_float(pack.values[i]);
  }
  Pack<T> out;
#pragma unroll
  for (int i = 0; i < width; ++i) out.values[i] = from_float<T>(sums[i] / pixels);
  store_pack(y + index * width, out);
}

template <class T>
__global__ void average_pool_backward_kernel(const T* dy, T* dx, int64_t packs, int pixels,
                                             int channels) {
  constexpr int width = pack_width<T>;
  const int64_t index = this_piece();
  if (index >= packs) return;
  const int packs_per_row = channels / width;
  const int64_t image = index / packs_per_row / pixels;
  Pack<T> pack = load_pack(dy + image * channels + index % packs_per_row * width);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    pack.values[i] = from_float<T>(to_float(pack.values[i]) / pixels);
  }
  store_pack(dx + index * width, pack);
}

constexpr int row_threads = 256;  // of a row of logits

template <class Combine>
__device__ float block_reduce(float value, Combine combine) {
  __shared__ float shared[row_threads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  __syncthreads();  // the array may still be read from the call before
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int warp = 1; warp < row_threads / 32; ++warp) value = combine(value, shared[warp]);
  return value;
}

template <class T>
__global__ void softmax_loss_kernel(LogitsShape shape, const float* logits, const float* bias,
                                    const int32_t* labels, const float* loss_scale, float* losses,
                                    T* gradient) {
  const int64_t image = blockIdx.x;
  const float* row = logits + image * shape.row_elements;
  float largest = -INFINITY;
  for (int k = threadIdx.x; k < shape.classes; k += row_threads) {
    largest = fmaxf(largest, row[k] + bias[k]);
  }
  largest = block_reduce(largest, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int k = threadIdx.x; k < shape.classes; k += row_threads) {
    sum += expf(row[k] + bias[k] - largest);
  }
  sum = block_reduce(sum, [](float a, float b) { return a + b; });
  const int label = labels[image];
  // fmaxf drops a NaN; the sum does not, so that a NaN in any logit reaches the loss.
  if (threadIdx.x == 0) losses[image] = logf(sum) + largest - row[label] - bias[label];
  if (gradient == nullptr) return;
  const float factor = *loss_scale / static_cast<float>(shape.rows);
  T* out = gradient + image * shape.row_elements;
  for (int k = threadIdx.x; k < shape.row_elements; k += row_threads) {
    float value = 0;
    if (k < shape.classes) {
      value = expf(row[k] + bias[k] - largest) / sum - (k == label ? 1.0f : 0.0f);
    }
    out[k] = from_float<T>(value * factor);
  }
}

// A block has a sequence: of each end first the largest logit, then the sum, then the gradient.
template <class T>
__global__ void span_loss_kernel(LogitsShape shape, int tokens, const float* logits,
                                 const float* bias, const int32_t* labels, const float* loss_scale,
                                 float* losses, T* gradient) {
  const int64_t sequence = blockIdx.x, first = sequence * tokens * shape.row_elements;
  const float factor = *loss_scale / static_cast<float>(2 * gridDim.x);
  float loss = 0;
  for (int end = 0; end < 2; ++end) {
    const auto logit = [&](int token) {
      return logits[first + int64_t{token} * shape.row_elements + end] + bias[end];
    };
    float largest = -INFINITY;
    for (int t = threadIdx.x; t < tokens; t += row_threads) largest = fmaxf(largest, logit(t));
    largest = block_reduce(largest, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    for (int t = threadIdx.x; t < tokens; t += row_threads) sum += expf(logit(t) - largest);
    sum = block_reduce(sum, [](float a, float b) { return a + b; });
    const int label = labels[2 * sequence + end];
    loss += logf(sum) + largest - logit(label);
    if (gradient == nullptr) continue;
    for (int t = threadIdx.x; t < tokens; t += row_threads) {
      const float value = expf(logit(t) - largest) / sum - (t == label ? 1.0f : 0.0f);
      T* row = gradient + first + int64_t{t} * shape.row_elements;
      row[end] = from_float<T>(value * factor);
      if (end == 0) continue;
      for (int k = 2; k < shape.row_elements; ++k) row[k] = from_float<T>(0);
    }
  }
  if (threadIdx.x == 0) losses[sequence] = loss / 2;
}

// Classes of a block that sums the gradient of the bias: start and end of spans have many rows,
// which more of its threads then take beside one another.
constexpr int few_classes = 2, many_classes = 32;
constexpr int bias_threads = 1024;

template <class T, int classes>
__global__ void __launch_bounds__(bias_threads)
    bias_gradient_kernel(LogitsShape shape, const T* gradient, float* bias_gradient) {
  constexpr int parts = bias_threads / classes;
  __shared__ float shared[parts][classes];
  const int part = threadIdx.x / classes, at = threadIdx.x % classes;
  const int k = blockIdx.x * classes + at;
  float sum = 0;
  if (k < shape.classes) {
#pragma unroll 4
    for (int64_t row = part; row < shape.rows; row += parts) {
      sum += to_float(gradient[row * shape.row_elements + k]);
    }
  }
  shared[part][at] = sum;
#pragma unroll
  for (int half = parts / 2; half > 0; half /= 2) {
    __syncthreads();
    if (part < half) shared[part][at] += shared[part + half][at];
  }
  if (part == 0 && k < shape.classes) bias_gradient[k] = shared[0][at];
}

}  // namespace

void launch_average_pool(Precision precision, const void* x, void* y, int64_t images, int pixels,
                         int channels, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const int64_t packs = images * channels / pack_width<T>;
    enqueue(each_piece(packs, stream), average_pool_kernel<T>, x, y, packs, pixels, channels);
  });
}

void launch_average_pool_backward(Precision precision, const void* dy, void* dx, int64_t images,
                                  int pixels, int channels, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const int64_t packs = images * pixels * channels / pack_width<T>;
    enqueue(each_piece(packs, stream), average_pool_backward_kernel<T>, dy, dx, packs, pixels,
            channels);
  });
}

void launch_softmax_loss(Precision precision, const LogitsShape& shape, const float* logits,
                         const float* bias, const int32_t* labels, const float* loss_scale,
                         float* losses, void* gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    enqueue({static_cast<unsigned>(shape.rows), row_threads, stream}, softmax_loss_kernel<T>, shape,
            logits, bias, labels, loss_scale, losses, gradient);
  });
}

void launch_span_loss(Precision precision, const LogitsShape& shape, int tokens,
                      const float* logits, const float* bias, const int32_t* labels,
                      const float* loss_scale, float* losses, void* gradient, cudaStream_t stream) {
  const auto sequences = static_cast<unsigned>(shape.rows / tokens);
  with_element_type(precision, [&]<class T>() {
    enqueue({sequences, row_threads, stream}, span_loss_kernel<T>, shape, tokens, logits, bias,
            labels, loss_scale, losses, gradient);
  });
}

void launch_bias_gradient(Precision precision, const LogitsShape& shape, const void* gradient,
                          float* bias_gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const bool few = shape.classes <= few_classes;
    enqueue({blocks_for(shape.classes, few ? few_classes : many_classes), bias_threads, stream},
            few ? bias_gradient_kernel<T, few_classes> : bias_gradient_kernel<T, many_classes>,
            shape, gradient, bias_gradient);
  });
}

}  // namespace nearmetal::cuda
