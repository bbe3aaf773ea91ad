#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/softmax.h"
#include "models/cuda/kernels/warp.h"

namespace nearmetal::cuda {
namespace {

// The row of this warp.
__device__ int64_t warp_row() {
  return int64_t{blockIdx.x} * (piece_threads / warp_lanes) + threadIdx.x / warp_lanes;
}
__device__ int warp_lane() { return static_cast<int>(threadIdx.x) % warp_lanes; }

template <class T>
__global__ void softmax_kernel(SoftmaxShape shape, const float* scores, float factor,
                               T* probabilities) {
  const int64_t row = warp_row();
  if (row >= shape.rows) return;
  const float* in = scores + row * shape.row_elements;
  T* out = probabilities + row * shape.row_elements;
  float largest = -INFINITY;
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) largest = fmaxf(largest, in[i]);
  largest = warp_max(largest);
  // fmaxf drops a NaN; the sum does not.
  float sum = 0;
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) {
    sum += expf(factor * (in[i] - largest));
  }
  const float inverse = 1 / warp_sum(sum);
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) {
    out[i] = from_float<T>(expf(factor * (in[i] - largest)) * inverse);
  }
}

template <class T>
__global__ void softmax_backward_kernel(SoftmaxShape shape, const T* probabilities,
                                        const float* gradient, float factor, T* score_gradient) {
  const int64_t row = warp_row();
  if (row >= shape.rows) return;
  const int64_t at = row * shape.row_elements;
  float sum = 0;
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) {
    sum = fmaf(to_float(probabilities[at + i]), gradient[at + i], sum);
  }
  sum = warp_sum(sum);
  for (int i = warp_lane(); i < shape.values; i += warp_lanes) {
    const float p = to_float(probabilities[at + i]);
    score_gradient[at + i] = from_float<T>(factor * p * (gradient[at + i] - sum));
  }
}

}  // namespace

void launch_softmax(Precision precision, const SoftmaxShape& shape, const float* scores,
                    float factor, void* probabilities, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    enqueue(each_piece(shape.rows * warp_lanes, stream), softmax_kernel<T>, shape, scores, factor,
            probabilities);
  });
}

void launch_softmax_backward(Precision precision, const SoftmaxShape& shape,
                             const void* probabilities, const float* gradient, float factor,
                             void* score_gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    enqueue(each_piece(shape.rows * warp_lanes, stream), softmax_backward_kernel<T>, shape,
            probabilities, gradient, factor, score_gradient);
  });
}

}  // namespace nearmetal::cuda
