#include "models/cuda/device/call.h"
#include "models/cuda/kernels/pack.h"
#include "models/cuda/kernels/sample_sums.h"
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
void sum_batch(const TokenExtent& extent, const void* values, int64_t elements, void* sums,
               cudaStream_t stream) {
  sum_over_samples(extent.batch, extent.sample_elements(), static_cast<const T*>(values), elements,
                   static_cast<T*>(sums), nullptr, stream);
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
    sum_batch<T>(longer, dy, extent.features, token_gradient, stream);
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
    sum_batch<T>(extent, dy, extent.sample_elements(), gradient, stream);
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
