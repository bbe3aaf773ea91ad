#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/tuning/trial_values.h"
#include "models/synthetic.h"

namespace nearmetal::cuda {
namespace {

constexpr int threads = 256, blocks = 1024;

// SplitMix64 (Steele, Lea, Flood, 2014), of a counter.
__device__ uint64_t random_bits(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// By Box and Muller.
__device__ float normal(uint64_t seed, uint64_t index) {
  const uint64_t bits = random_bits(seed, index);
  const float radius = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;
  const float turn = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return sqrtf(-2 * logf(radius)) * cospif(2 * turn);
}

template <class Write>
__device__ void for_each(int64_t count, Write write) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) write(i);
}

template <class T>
__global__ void fill_numbers_kernel(T* values, int64_t count, TrialValues of) {
  for_each(count, [&](int64_t i) {
    const float value = of.scale * normal(of.seed, i) + of.offset;
    values[i] = from_float<T>(of.content == Content::rectified ? fmaxf(value, 0) : value);
  });
}

// As of values with a deviation of 1 and some mean.
__global__ void fill_sums_kernel(float* sums, int64_t channels, TrialValues of) {
  for_each(channels, [&](int64_t i) {
    const float mean = normal(of.seed, i), rows = static_cast<float>(of.rows);
    sums[i] = mean * rows;
    sums[channels + i] = (1 + mean * mean) * rows;
  });
}

__global__ void fill_winners_kernel(uint8_t* values, int64_t count, TrialValues of) {
  for_each(count,
           [&](int64_t i) { values[i] = static_cast<uint8_t>(random_bits(of.seed, i) % 9); });
}

// A byte for each pack of 16 bytes, as launch_normalise() leaves them.
__global__ void fill_mask_kernel(uint8_t* masks, int64_t count, int width, TrialValues of) {
  for_each(count, [&](int64_t i) {
    unsigned bits = 0;
    for (int k = 0; k < width; ++k) bits |= (normal(of.seed, i * width + k) > 0 ? 1u : 0u) << k;
    masks[i] = static_cast<uint8_t>(bits);
  });
}

__device__ void add(Difference* total, double squares, double reference_squares,
                    unsigned long long not_finite) {
  for (int lane = 16; lane > 0; lane /= 2) {
    squares += __shfl_down_sync(~0u, squares, lane);
    reference_squares += __shfl_down_sync(~0u, reference_squares, lane);
    not_finite += __shfl_down_sync(~0u, not_finite, lane);
  }
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(&total->squares, squares);
  atomicAdd(&total->reference_squares, reference_squares);
  atomicAdd(&total->not_finite, not_finite);
}

template <class T>
__global__ void difference_of_numbers_kernel(const T* reference, const T* other, int64_t count,
                                             Difference* total) {
  double squares = 0, reference_squares = 0;
  unsigned long long not_finite = 0;
  for_each(count, [&](int64_t i) {
    const float a = to_float(reference[i]), b = to_float(other[i]);
    squares += (double{b} - a) * (double{b} - a);
    reference_squares += double{a} * a;
    not_finite += isfinite(a) && isfinite(b) ? 0 : 1;
  });
  add(total, squares, reference_squares, not_finite);
}

__global__ void difference_of_bytes_kernel(const uint8_t* reference, const uint8_t* other,
                                           int64_t count, bool bits, Difference* total) {
  double squares = 0, reference_squares = 0;
  for_each(count, [&](int64_t i) {
    const unsigned differing = reference[i] ^ other[i];
    squares += bits ? __popc(differing) : (differing != 0 ? 1 : 0);
    reference_squares += bits ? 8 : 1;
  });
  add(total, squares, reference_squares, 0);
}

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

void launch_fill(const TrialValues& values, void* memory, int64_t bytes, cudaStream_t stream) {
  switch (values.content) {
    case Content::numbers:
    case Content::rectified:
      with_element_type(values.precision, [&]<class T>() {
        fill_numbers_kernel<<<blocks, threads, 0, stream>>>(
            static_cast<T*>(memory), bytes / static_cast<int64_t>(sizeof(T)), values);
      });
      break;
    case Content::channel_sums:
      fill_sums_kernel<<<1, threads, 0, stream>>>(static_cast<float*>(memory), bytes / 8, values);
      break;
    case Content::mask:
      fill_mask_kernel<<<blocks, threads, 0, stream>>>(
          static_cast<uint8_t*>(memory), bytes,
          static_cast<int>(16 / element_bytes(values.precision)), values);
      break;
    case Content::winners:
      fill_winners_kernel<<<blocks, threads, 0, stream>>>(static_cast<uint8_t*>(memory), bytes,
                                                          values);
      break;
    case Content::other:
      no_kernel("values of no known content");
  }
  NM_CHECK_LAUNCH();
}

void launch_difference(Content content, Precision precision, const void* reference,
                       const void* other, int64_t bytes, Difference* total, cudaStream_t stream) {
  if (content == Content::mask || content == Content::winners) {
    difference_of_bytes_kernel<<<blocks, threads, 0, stream>>>(
        static_cast<const uint8_t*>(reference), static_cast<const uint8_t*>(other), bytes,
        content == Content::mask, total);
  } else {
    with_element_type(precision, [&]<class T>() {
      difference_of_numbers_kernel<<<blocks, threads, 0, stream>>>(
          static_cast<const T*>(reference), static_cast<const T*>(other),
          bytes / static_cast<int64_t>(sizeof(T)), total);
    });
  }
  NM_CHECK_LAUNCH();
}

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
