#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/tuning/trial_values.h"

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

}  // namespace nearmetal::cuda
