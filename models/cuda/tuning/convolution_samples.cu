#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/tuning/samples.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {
namespace {

constexpr int check_threads = 128;

__device__ double block_sum(double value) {
  __shared__ double shared[check_threads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = check_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  const double total = shared[0];
  __syncthreads();
  return total;
}

template <class T>
struct Tensors {
  const T* x;
  const T* weights;
  const T* y;
  const T* bias;
  const T* residual;

  __device__ double at_x(const ConvolutionShape& s, int64_t n, int64_t h, int64_t w,
                         int64_t c) const {
    if (h < 0 || w < 0 || h >= s.input_height || w >= s.input_width) return 0;
    return to_float(x[((n * s.input_height + h) * s.input_width + w) * s.input_channels + c]);
  }
  __device__ double at_y(const ConvolutionShape& s, int64_t n, int64_t p, int64_t q,
                         int64_t k) const {
    if (p < 0 || q < 0 || p >= s.output_height || q >= s.output_width) return 0;
    return to_float(y[((n * s.output_height + p) * s.output_width + q) * s.output_channels + k]);
  }
  __device__ double at_weights(const ConvolutionShape& s, int64_t k, int64_t r, int64_t q,
                               int64_t c) const {
    return to_float(weights[((k * s.kernel + r) * s.kernel + q) * s.input_channels + c]);
  }
};

// y[n,p,q,k] = sum over r,s,c of x[n, p*stride - padding + r, ..., c] * w[k,r,s,c]
template <class T>
__device__ double forward_term(const Tensors<T>& t, const ConvolutionShape& s, int64_t output,
                               int64_t term) {
  const int64_t k = output % s.output_channels, pixel = output / s.output_channels;
  const int64_t q = pixel % s.output_width, p = pixel / s.output_width % s.output_height;
  const int64_t n = pixel / s.output_width / s.output_height;
  const int64_t c = term % s.input_channels, tap = term / s.input_channels;
  const int64_t column = tap % s.kernel, row = tap / s.kernel;
  return t.at_x(s, n, p * s.stride - s.padding_before + row,
                q * s.stride - s.padding_before + column, c) *
         t.at_weights(s, k, row, column, c);
}

// dx[n,h,w,c] = sum over r,s,k with h = p*stride - padding + r of dy[n,p,q,k] * w[k,r,s,c]
template <class T>
__device__ double data_term(const Tensors<T>& t, const ConvolutionShape& s, int64_t output,
                            int64_t term) {
  const int64_t c = output % s.input_channels, pixel = output / s.input_channels;
  const int64_t w = pixel % s.input_width, h = pixel / s.input_width % s.input_height;
  const int64_t n = pixel / s.input_width / s.input_height;
  const int64_t k = term % s.output_channels, tap = term / s.output_channels;
  const int64_t column = tap % s.kernel, row = tap / s.kernel;
  const int64_t p = h + s.padding_before - row, q = w + s.padding_before - column;
  if (p < 0 || q < 0 || p % s.stride != 0 || q % s.stride != 0) return 0;
  return t.at_y(s, n, p / s.stride, q / s.stride, k) * t.at_weights(s, k, row, column, c);
}

// dw[k,r,s,c] = sum over n,p,q of x[n, p*stride - padding + r, ..., c] * dy[n,p,q,k]
template <class T>
__device__ double weights_term(const Tensors<T>& t, const ConvolutionShape& s, int64_t output,
                               int64_t term) {
  const int64_t c = output % s.input_channels, tap = output / s.input_channels;
  const int64_t column = tap % s.kernel, row = tap / s.kernel % s.kernel;
  const int64_t k = tap / s.kernel / s.kernel;
  const int64_t q = term % s.output_width, p = term / s.output_width % s.output_height;
  const int64_t n = term / s.output_width / s.output_height;
  return t.at_x(s, n, p * s.stride - s.padding_before + row,
                q * s.stride - s.padding_before + column, c) *
         t.at_y(s, n, p, q, k);
}

template <class T>
__global__ void sample_kernel(ConvolutionOp op, ConvolutionShape shape, Tensors<T> tensors,
                              const T* result, int64_t outputs, int64_t terms, Sample* samples) {
  const int64_t output = static_cast<int64_t>(substream(77, blockIdx.x) % outputs);
  double sum = 0;
  for (int64_t term = threadIdx.x; term < terms; term += check_threads) {
    switch (op) {
      case ConvolutionOp::backward_data:
        sum += data_term(tensors, shape, output, term);
        break;
      case ConvolutionOp::backward_weights:
        sum += weights_term(tensors, shape, output, term);
        break;
      default:
        sum += forward_term(tensors, shape, output, term);
    }
  }
  sum = block_sum(sum);
  if (tensors.bias != nullptr) sum += to_float(tensors.bias[output % shape.output_channels]);
  if (tensors.residual != nullptr) sum += to_float(tensors.residual[output]);
  if (op == ConvolutionOp::forward_activation || op == ConvolutionOp::forward_residual) {
    sum = fmax(sum, 0.0);
  }
  if (threadIdx.x == 0) samples[blockIdx.x] = {sum, to_float(result[output])};
}

}  // namespace

void launch_convolution_samples(Precision precision, ConvolutionOp op,
                                const ConvolutionShape& shape, const ConvolutionOperands& operands,
                                const ConvolutionSamples& which, Sample* samples,
                                cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const Tensors<T> tensors{
        static_cast<const T*>(operands.x), static_cast<const T*>(operands.weights),
        static_cast<const T*>(operands.y), static_cast<const T*>(operands.bias),
        static_cast<const T*>(operands.residual)};
    const T* result = op == ConvolutionOp::backward_data      ? tensors.x
                      : op == ConvolutionOp::backward_weights ? tensors.weights
                                                              : tensors.y;
    sample_kernel<<<which.samples, check_threads, 0, stream>>>(op, shape, tensors, result,
                                                               which.outputs, which.terms, samples);
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
