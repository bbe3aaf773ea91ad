#include "models/cuda/device/check.h"
#include "models/cuda/kernels/head.h"
#include "models/cuda/kernels/pack.h"

namespace nearmetal::cuda {
namespace {

constexpr int head_threads = 256;

template <class T>
__global__ void average_pool_kernel(const T* x, T* y, int64_t packs, int pixels, int channels) {
  constexpr int width = pack_width<T>;
  const int64_t index = int64_t{blockIdx.x} * head_threads + threadIdx.x;
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
  const int64_t index = int64_t{blockIdx.x} * head_threads + threadIdx.x;
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

template <class Combine>
__device__ float block_reduce(float value, Combine combine) {
  __shared__ float shared[head_threads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  __syncthreads();  // the array may still be read from the call before
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int warp = 1; warp < head_threads / 32; ++warp) value = combine(value, shared[warp]);
  return value;
}

template <class T>
__global__ void softmax_loss_kernel(LogitsShape shape, const float* logits, const float* bias,
                                    const int32_t* labels, const float* loss_scale, float* losses,
                                    T* gradient) {
  const int64_t image = blockIdx.x;
  const float* row = logits + image * shape.row_elements;
  float largest = -INFINITY;
  for (int k = threadIdx.x; k < shape.classes; k += head_threads) {
    largest = fmaxf(largest, row[k] + bias[k]);
  }
  largest = block_reduce(largest, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int k = threadIdx.x; k < shape.classes; k += head_threads) {
    sum += expf(row[k] + bias[k] - largest);
  }
  sum = block_reduce(sum, [](float a, float b) { return a + b; });
  const int label = labels[image];
  // fmaxf drops a NaN; the sum does not, so that a NaN in any logit reaches the loss.
  if (threadIdx.x == 0) losses[image] = logf(sum) + largest - row[label] - bias[label];
  if (gradient == nullptr) return;
  const float factor = *loss_scale / static_cast<float>(shape.images);
  T* out = gradient + image * shape.row_elements;
  for (int k = threadIdx.x; k < shape.row_elements; k += head_threads) {
    float value = 0;
    if (k < shape.classes) {
      value = expf(row[k] + bias[k] - largest) / sum - (k == label ? 1.0f : 0.0f);
    }
    out[k] = from_float<T>(value * factor);
  }
}

// A block sums 32 classes; its 8 warps take every eighth image.
template <class T>
__global__ void bias_gradient_kernel(LogitsShape shape, const T* gradient, float* bias_gradient) {
  __shared__ float shared[head_threads / 32][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int k = blockIdx.x * 32 + lane;
  float sum = 0;
  if (k < shape.classes) {
    for (int64_t image = warp; image < shape.images; image += head_threads / 32) {
      sum += to_float(gradient[image * shape.row_elements + k]);
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || k >= shape.classes) return;
  for (int w = 1; w < head_threads / 32; ++w) sum += shared[w][lane];
  bias_gradient[k] = sum;
}

}  // namespace

void launch_average_pool(Precision precision, const void* x, void* y, int64_t images, int pixels,
                         int channels, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const int64_t packs = images * channels / pack_width<T>;
    average_pool_kernel<T><<<blocks_for(packs, head_threads), head_threads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<T*>(y), packs, pixels, channels);
  });
  NM_CHECK_LAUNCH();
}

void launch_average_pool_backward(Precision precision, const void* dy, void* dx, int64_t images,
                                  int pixels, int channels, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const int64_t packs = images * pixels * channels / pack_width<T>;
    average_pool_backward_kernel<T><<<blocks_for(packs, head_threads), head_threads, 0, stream>>>(
        static_cast<const T*>(dy), static_cast<T*>(dx), packs, pixels, channels);
  });
  NM_CHECK_LAUNCH();
}

void launch_softmax_loss(Precision precision, const LogitsShape& shape, const float* logits,
                         const float* bias, const int32_t* labels, const float* loss_scale,
                         float* losses, void* gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    softmax_loss_kernel<T><<<static_cast<unsigned>(shape.images), head_threads, 0, stream>>>(
        shape, logits, bias, labels, loss_scale, losses, static_cast<T*>(gradient));
  });
  NM_CHECK_LAUNCH();
}

void launch_bias_gradient(Precision precision, const LogitsShape& shape, const void* gradient,
                          float* bias_gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    bias_gradient_kernel<T><<<(shape.classes + 31) / 32, head_threads, 0, stream>>>(
        shape, static_cast<const T*>(gradient), bias_gradient);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
