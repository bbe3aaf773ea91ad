#include <algorithm>
#include <cmath>
#include <vector>

#include "models/cuda/device/check.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/tuning/convolution_check.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {
namespace {

constexpr int check_threads = 128;

struct Sample {
  double exact;
  double found;
};

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

template <class T>
__global__ void count_not_finite_kernel(const T* values, int64_t count, unsigned long long* total) {
  unsigned long long mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * check_threads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * check_threads) {
    mine += isfinite(to_float(values[i])) ? 0 : 1;
  }
  if (mine != 0) atomicAdd(total, mine);
}

}  // namespace

bool CheckResult::passes(const ConvolutionProblem& problem) const {
  // Rounding of the result, of the operands where the precision rounds them, and of an fp32 sum,
  // whose error grows as the square root of its length; tensor cores keep a few bits less.
  const double rounding = problem.precision == Precision::fp16   ? 0x1p-11
                          : problem.precision == Precision::bf16 ? 0x1p-8
                          : problem.precision == Precision::tf32 ? 0x1p-10
                                                                 : 0x1p-23;
  const double allowed = rounding + 16 * std::sqrt(static_cast<double>(problem.terms())) * 0x1p-24;
  return within(allowed);
}

int samples_to_check(const ConvolutionProblem& problem) {
  const int64_t terms = problem.op == ConvolutionOp::backward_weights
                            ? problem.terms()
                            : problem.shape.weight_elements();
  return static_cast<int>(std::clamp(1e9 / static_cast<double>(terms), 256.0, 2048.0));
}

CheckResult check_convolution(const ConvolutionProblem& problem,
                              const ConvolutionOperands& operands, int samples,
                              cudaStream_t stream) {
  const int64_t outputs = problem.result_elements();
  const DeviceMemory device_samples = allocate_device(samples * sizeof(Sample));
  const DeviceMemory device_count = allocate_device(sizeof(unsigned long long));
  NM_CALL(cudaMemsetAsync(device_count.get(), 0, sizeof(unsigned long long), stream));
  with_element_type(problem.precision, [&]<class T>() {
    const Tensors<T> tensors{
        static_cast<const T*>(operands.x), static_cast<const T*>(operands.weights),
        static_cast<const T*>(operands.y), static_cast<const T*>(operands.bias),
        static_cast<const T*>(operands.residual)};
    const T* result = problem.op == ConvolutionOp::backward_data      ? tensors.x
                      : problem.op == ConvolutionOp::backward_weights ? tensors.weights
                                                                      : tensors.y;
    sample_kernel<<<samples, check_threads, 0, stream>>>(
        problem.op, problem.shape, tensors, result, outputs, problem.terms(),
        static_cast<Sample*>(device_samples.get()));
    NM_CHECK_LAUNCH();
    count_not_finite_kernel<<<1024, check_threads, 0, stream>>>(
        result, outputs, static_cast<unsigned long long*>(device_count.get()));
    NM_CHECK_LAUNCH();
  });
  std::vector<Sample> found(samples);
  unsigned long long not_finite = 0;
  NM_CALL(cudaMemcpyAsync(found.data(), device_samples.get(), samples * sizeof(Sample),
                          cudaMemcpyDeviceToHost, stream));
  NM_CALL(cudaMemcpyAsync(&not_finite, device_count.get(), sizeof(not_finite),
                          cudaMemcpyDeviceToHost, stream));
  NM_CALL(cudaStreamSynchronize(stream));

  double exact_squares = 0, error_squares = 0, largest = 0;
  for (const Sample& sample : found) {
    const double error = sample.found - sample.exact;
    exact_squares += sample.exact * sample.exact;
    error_squares += error * error;
    largest = std::max(largest, std::abs(error));
  }
  CheckResult result;
  result.relative_error = std::sqrt(error_squares / exact_squares);
  result.largest_error = largest / std::sqrt(exact_squares / samples);
  result.not_finite = static_cast<int64_t>(not_finite);
  return result;
}

}  // namespace nearmetal::cuda
