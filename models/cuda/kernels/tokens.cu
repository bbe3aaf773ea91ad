#include "models/cuda/device/check.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/tokens.h"

namespace nearmetal::cuda {
namespace {

constexpr int token_threads = 256;

template <class T>
__device__ Pack<T> rounded(const float* values) {
  return from_floats<T>(Channels<T>::load(values));
}

// Where a pack of a tensor lies; `extent` is that of the tensor.
struct PackPlace {
  int64_t sample, element;  // the latter within the sample
  bool exists;

  __device__ PackPlace(const TokenExtent& extent, int width) {
    const int64_t at = (int64_t{blockIdx.x} * token_threads + threadIdx.x) * width;
    exists = at < extent.elements();
    sample = at / extent.sample_elements();
    element = at % extent.sample_elements();
  }
};

template <class T>
__global__ void prepend_token_kernel(TokenExtent x_extent, TokenExtent extent, const T* x,
                                     const float* token, T* y) {
  const PackPlace place(extent, pack_width<T>);
  if (!place.exists) return;
  T* out = y + place.sample * extent.sample_elements() + place.element;
  const int64_t element = place.element - extent.features;
  store_pack(out, element < 0 ? rounded<T>(token + place.element)
                              : load_pack(x + place.sample * x_extent.sample_elements() + element));
}

template <class T>
__global__ void drop_token_kernel(TokenExtent extent, TokenExtent dy_extent, const T* dy, T* dx) {
  const PackPlace place(extent, pack_width<T>);
  if (!place.exists) return;
  const int64_t from = place.sample * dy_extent.sample_elements() + extent.features + place.element;
  store_pack(dx + place.sample * extent.sample_elements() + place.element, load_pack(dy + from));
}

template <class T>
__global__ void add_positions_kernel(TokenExtent extent, const T* x, const float* positions, T* y) {
  const PackPlace place(extent, pack_width<T>);
  if (!place.exists) return;
  const int64_t at = place.sample * extent.sample_elements() + place.element;
  Channels<T> sum = to_floats(load_pack(x + at));
  const auto position = Channels<T>::load(positions + place.element);
#pragma unroll
  for (int i = 0; i < pack_width<T>; ++i) sum.values[i] += position.values[i];
  store_pack(y + at, from_floats<T>(sum));
}

// sum[i] over samples of values[sample][i], for the first `elements` of each; a warp has 32 packs,
// and the warps of a block every eighth sample.
template <class T>
__global__ void __launch_bounds__(token_threads)
    sum_over_samples_kernel(TokenExtent extent, const T* values, int64_t elements, T* sums) {
  constexpr int width = pack_width<T>, warps = token_threads / 32;
  __shared__ Channels<T> shared[warps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t at = (int64_t{blockIdx.x} * 32 + lane) * width;
  Channels<T> sum = {};
  if (at < elements) {
#pragma unroll 4
    for (int64_t sample = warp; sample < extent.batch; sample += warps) {
      const Channels<T> add = to_floats(load_pack(values + sample * extent.sample_elements() + at));
#pragma unroll
      for (int i = 0; i < width; ++i) sum.values[i] += add.values[i];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || at >= elements) return;
  for (int w = 1; w < warps; ++w) {
#pragma unroll
    for (int i = 0; i < width; ++i) sum.values[i] += shared[w][lane].values[i];
  }
  store_pack(sums + at, from_floats<T>(sum));
}

template <class T>
__global__ void first_token_kernel(TokenExtent extent, const T* x, T* y) {
  const TokenExtent first{extent.batch, 1, extent.features};
  const PackPlace place(first, pack_width<T>);
  if (!place.exists) return;
  store_pack(y + place.sample * extent.features + place.element,
             load_pack(x + place.sample * extent.sample_elements() + place.element));
}

template <class T>
__global__ void first_token_backward_kernel(TokenExtent extent, const T* dy, T* dx) {
  const PackPlace place(extent, pack_width<T>);
  if (!place.exists) return;
  Pack<T> pack = from_floats<T>(Channels<T>{});
  if (place.element < extent.features) {
    pack = load_pack(dy + place.sample * extent.features + place.element);
  }
  store_pack(dx + place.sample * extent.sample_elements() + place.element, pack);
}

template <class T>
unsigned blocks_of(const TokenExtent& extent) {
  return blocks_for(extent.elements() / pack_width<T>, token_threads);
}

template <class T>
void sum_over_samples(const TokenExtent& extent, const void* values, int64_t elements, void* sums,
                      cudaStream_t stream) {
  const unsigned blocks = blocks_for(elements / pack_width<T>, 32);
  sum_over_samples_kernel<T><<<blocks, token_threads, 0, stream>>>(
      extent, static_cast<const T*>(values), elements, static_cast<T*>(sums));
}

TokenExtent with_one_more(TokenExtent extent) {
  ++extent.tokens;
  return extent;
}

}  // namespace

void launch_prepend_token(Precision precision, const TokenExtent& extent, const void* x,
                          const float* token, void* y, cudaStream_t stream) {
  const TokenExtent longer = with_one_more(extent);
  with_element_type(precision, [&]<class T>() {
    prepend_token_kernel<T><<<blocks_of<T>(longer), token_threads, 0, stream>>>(
        extent, longer, static_cast<const T*>(x), token, static_cast<T*>(y));
  });
  NM_CHECK_LAUNCH();
}

void launch_prepend_token_backward(Precision precision, const TokenExtent& extent, const void* dy,
                                   void* dx, void* token_gradient, cudaStream_t stream) {
  const TokenExtent longer = with_one_more(extent);
  with_element_type(precision, [&]<class T>() {
    drop_token_kernel<T><<<blocks_of<T>(extent), token_threads, 0, stream>>>(
        extent, longer, static_cast<const T*>(dy), static_cast<T*>(dx));
    NM_CHECK_LAUNCH();
    sum_over_samples<T>(longer, dy, extent.features, token_gradient, stream);
  });
  NM_CHECK_LAUNCH();
}

void launch_add_positions(Precision precision, const TokenExtent& extent, const void* x,
                          const float* positions, void* y, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    add_positions_kernel<T><<<blocks_of<T>(extent), token_threads, 0, stream>>>(
        extent, static_cast<const T*>(x), positions, static_cast<T*>(y));
  });
  NM_CHECK_LAUNCH();
}

void launch_positions_gradient(Precision precision, const TokenExtent& extent, const void* dy,
                               void* gradient, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    sum_over_samples<T>(extent, dy, extent.sample_elements(), gradient, stream);
  });
  NM_CHECK_LAUNCH();
}

void launch_first_token(Precision precision, const TokenExtent& extent, const void* x, void* y,
                        cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    const unsigned blocks = blocks_of<T>({extent.batch, 1, extent.features});
    first_token_kernel<T><<<blocks, token_threads, 0, stream>>>(extent, static_cast<const T*>(x),
                                                                static_cast<T*>(y));
  });
  NM_CHECK_LAUNCH();
}

void launch_first_token_backward(Precision precision, const TokenExtent& extent, const void* dy,
                                 void* dx, cudaStream_t stream) {
  with_element_type(precision, [&]<class T>() {
    first_token_backward_kernel<T><<<blocks_of<T>(extent), token_threads, 0, stream>>>(
        extent, static_cast<const T*>(dy), static_cast<T*>(dx));
  });
  NM_CHECK_LAUNCH();
}

}  // namespace nearmetal::cuda
